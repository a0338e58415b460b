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

// Reads the memory once, with all threads.
class Pass {
 public:
  Pass(ByteSpan memory, ThreadPool* pool, std::string_view isa)
      : memory_(memory), pool_(pool), read_(FindPeakLoops(isa).read) {
    if (read_ == nullptr) read_ = scalar::PeakRead;
  }
  int pieces() const { return static_cast<int>(memory_.size() / kPieceBytes); }
  double bytes() const { return static_cast<double>(pieces()) * kPieceBytes; }
  void Run() const {
    pool_->Run(pieces(), [&](int piece) {
      read_(memory_.data() + static_cast<uint64_t>(piece) * kPieceBytes, kPieceBytes);
    });
  }

 private:
  ByteSpan memory_;
  ThreadPool* pool_;
  void (*read_)(const uint8_t*, uint64_t);
};

}  // namespace

double MeasureMemoryBandwidth(ByteSpan memory, ThreadPool* pool, std::string_view isa) {
  const Pass pass(memory, pool, isa);
  if (pass.pieces() == 0) return 0;
  double best = 0;
  const double begin = NowSeconds();
  for (int i = 0; i < kPassesMin || NowSeconds() - begin < kSeconds; ++i) {
    const double start = NowSeconds();
    pass.Run();
    best = std::max(best, pass.bytes() / (NowSeconds() - start));
  }
  return best;
}

double MeanMemoryBandwidth(ByteSpan memory, ThreadPool* pool, std::string_view isa,
                           FunctionRef<bool()> more) {
  const Pass pass(memory, pool, isa);
  if (pass.pieces() == 0) return 0;
  const double begin = NowSeconds();
  double bytes = 0;
  for (; more(); bytes += pass.bytes()) pass.Run();
  return bytes / std::max(NowSeconds() - begin, 1e-9);
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
