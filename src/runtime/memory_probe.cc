#include "runtime/memory_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

constexpr int kPassesMin = 6;
constexpr double kSeconds = 0.1;  // long enough that a busy neighbour does not spoil every pass
constexpr uint64_t kPieceBytes = 1 << 20;

// Four streams keep the prefetchers busy (one alone reaches two thirds of what the memory gives),
// two chains each hide the latency of the adds; the compiler turns them into vector loads.
uint64_t SumWords(const uint64_t* p, uint64_t words) {
  constexpr uint64_t kStreams = 4;
  const uint64_t run = words / kStreams;
  uint64_t sum[kStreams][2] = {};
  for (uint64_t i = 0; i + 8 <= run; i += 8) {
    for (uint64_t s = 0; s < kStreams; ++s) {
      const uint64_t* q = p + s * run + i;
      for (uint64_t j = 0; j < 8; ++j) sum[s][j % 2] += q[j];
    }
  }
  uint64_t total = 0;
  for (const auto& pair : sum) total += pair[0] + pair[1];
  return total;
}

}  // namespace

double MeasureMemoryBandwidth(ByteSpan memory, ThreadPool* pool) {
  const int pieces = static_cast<int>(memory.size() / kPieceBytes);
  if (pieces == 0) return 0;
  const uint64_t* words = reinterpret_cast<const uint64_t*>(memory.data());
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const double begin = NowSeconds();
  for (int pass = 0; pass < kPassesMin || NowSeconds() - begin < kSeconds; ++pass) {
    const double start = NowSeconds();
    pool->Run(pieces, [&](int piece) {
      sink += SumWords(words + static_cast<uint64_t>(piece) * (kPieceBytes / 8), kPieceBytes / 8);
    });
    best = std::max(best, static_cast<double>(pieces) * kPieceBytes / (NowSeconds() - start));
  }
  return best;
}

double MeasureMemoryBandwidth(uint64_t bytes, int threads) {
  bytes = bytes / kPieceBytes * kPieceBytes;
  if (bytes == 0) return 0;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  // Distinct values, so that no page is the shared zero page.
  for (uint64_t at = 0; at < bytes / 8; at += 512) static_cast<uint64_t*>(memory)[at] = at;
  ThreadPool pool(threads);
  const double rate = MeasureMemoryBandwidth({static_cast<const uint8_t*>(memory), bytes}, &pool);
  munmap(memory, bytes);
  return rate;
}

}  // namespace sluice
