#include "runtime/memory_probe.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/clock.h"
#include "kernels/peak.h"

namespace sluice {
namespace {

constexpr int kPassesMin = 6;
constexpr double kSeconds = 0.1;  // long enough that a busy neighbour does not spoil every pass
constexpr uint64_t kPieceBytes = 4 * kMiB, kHugePageBytes = 2 * kMiB;

}  // namespace

double MeasureMemoryBandwidth(ByteSpan memory, ThreadPool* pool, std::string_view isa) {
  const int pieces = static_cast<int>(memory.size() / kPieceBytes);
  if (pieces == 0) return 0;
  const PeakLoops loops = FindPeakLoops(isa);
  const auto read = loops.read != nullptr ? loops.read : scalar::PeakRead;
  double best = 0;
  const double begin = NowSeconds();
  for (int pass = 0; pass < kPassesMin || NowSeconds() - begin < kSeconds; ++pass) {
    const double start = NowSeconds();
    pool->Run(pieces, [&](int piece) {
      read(memory.data() + static_cast<uint64_t>(piece) * kPieceBytes, kPieceBytes);
    });
    best = std::max(best, static_cast<double>(pieces) * kPieceBytes / (NowSeconds() - start));
  }
  return best;
}

double MeasureMemoryBandwidth(uint64_t bytes, int threads, std::string_view isa) {
  bytes = bytes / kPieceBytes * kPieceBytes;
  if (bytes == 0) return 0;
  const uint64_t mapped = bytes + kHugePageBytes;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  auto* memory =
      reinterpret_cast<uint8_t*>(AlignUp(reinterpret_cast<uint64_t>(mapping), kHugePageBytes));
  madvise(memory, bytes, MADV_HUGEPAGE);
  // Written, so that no page is the shared zero page.
  for (uint64_t at = 0; at < bytes; at += 4096) memory[at] = static_cast<uint8_t>(at >> 12);
  ThreadPool pool(threads);
  const double rate = MeasureMemoryBandwidth({memory, bytes}, &pool, isa);
  munmap(mapping, mapped);
  return rate;
}

}  // namespace sluice
