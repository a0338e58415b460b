#include "io/probe.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/cpu.h"

namespace sluice {
namespace {

constexpr uint64_t kBufferAlignment = 64 * kKiB;
constexpr size_t kQueuedPerDepth = 4;
// Reads that land in the processor's cache flatter the device: 5.5 GB/s were measured into 8
// MiB, 4.0 into memory.
constexpr uint64_t kOwnBytes = 64 * kMiB;
constexpr int kRounds =
    3;  // depths take turns, so that a busy moment of the machine hits all of them

// Places to read, the same for every run.
class Places {
 public:
  Places(const File& file, uint64_t request_bytes, uint64_t alignment, uint64_t seed)
      : file_(file),
        request_bytes_(request_bytes),
        alignment_(std::max<uint64_t>(alignment, PageBytes())),
        state_(seed * 2 + 1) {}

  uint64_t Next() {
    const uint64_t room = file_.size() > request_bytes_ ? file_.size() - request_bytes_ : 0;
    if (room == 0) return 0;
    uint64_t at = 0;
    for (int attempt = 0; attempt < 4; ++attempt) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      at = AlignDown((state_ >> 16) % room, alignment_);
      const off_t data = lseek(file_.fd(), static_cast<off_t>(at), SEEK_DATA);
      if (data < 0 || static_cast<uint64_t>(data) == at) return at;
      if (static_cast<uint64_t>(data) <= room)
        return AlignDown(static_cast<uint64_t>(data), alignment_);
    }
    return at;
  }

 private:
  const File& file_;
  const uint64_t request_bytes_, alignment_;
  uint64_t state_;
};

constexpr uint64_t kHugePageBytes = 2 * kMiB;

struct Buffers {
  explicit Buffers(const BandwidthProbeOptions& options) {
    base = options.memory.data();
    bytes = AlignDown(std::min<uint64_t>(options.memory.size(), kOwnBytes * 4), kBufferAlignment);
    if (base != nullptr) return;
    bytes = ProbeBytes(options);
    mapped = bytes + kHugePageBytes;
    mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return;
    base = reinterpret_cast<uint8_t*>(AlignUp(reinterpret_cast<uint64_t>(mapping), kHugePageBytes));
    madvise(base, bytes, MADV_HUGEPAGE);
    // Page faults belong to no device.
    for (uint64_t at = 0; at < bytes; at += PageBytes())
      static_cast<volatile uint8_t*>(base)[at] = 0;
  }
  ~Buffers() {
    if (mapping != MAP_FAILED) munmap(mapping, mapped);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  uint8_t* base = nullptr;
  uint64_t bytes = 0;
  void* mapping = MAP_FAILED;
  uint64_t mapped = 0;
};

Status Measure(ReadQueue* queue, Places* places, uint64_t request_bytes, uint64_t file_bytes,
               double seconds, const Buffers& buffers, std::vector<ReadRequest>* requests,
               BandwidthSample* sample) {
  // More requests than the queue hands out at once: a prober that is scheduled late must not leave
  // the device idle. They share buffers; nobody looks at the bytes.
  const size_t depth = static_cast<size_t>(sample->depth), n = depth * kQueuedPerDepth;
  request_bytes = std::min(request_bytes, AlignDown(buffers.bytes / depth, kBufferAlignment));
  const uint64_t stride = AlignUp(request_bytes, kBufferAlignment);
  const uint64_t places_in_memory = buffers.bytes / stride;
  uint64_t place = 0;
  const double start = NowSeconds();
  auto submit = [&](size_t i) {
    ReadRequest& request = (*requests)[i];
    request.offset = places->Next();
    request.length = std::min(request_bytes, AlignUp(file_bytes, queue->alignment()));
    request.buffer = buffers.base + place++ % places_in_memory * stride;
    queue->Submit(&request);
  };
  for (size_t i = 0; i < n; ++i) submit(i);
  double now = start;
  for (size_t i = 0; now - start < seconds; i = (i + 1) % n) {
    SLUICE_TRY(queue->Wait(&(*requests)[i]));
    sample->bytes += (*requests)[i].length;
    submit(i);
    now = NowSeconds();
  }
  sample->seconds += now - start;
  for (size_t i = 0; i < n; ++i) SLUICE_TRY(queue->Wait(&(*requests)[i]));
  return Status();
}

}  // namespace

uint64_t ProbeBytes(const BandwidthProbeOptions& options) {
  const int deepest =
      options.depths.empty() ? 1 : *std::max_element(options.depths.begin(), options.depths.end());
  const uint64_t least = static_cast<uint64_t>(std::max(deepest, 1)) *
                         AlignUp(options.request_bytes, kBufferAlignment);
  return std::max(least, AlignDown(std::min(kOwnBytes, options.own_bytes_max), kBufferAlignment));
}

Result<BandwidthProbe> MeasureReadBandwidth(const File& file,
                                            const BandwidthProbeOptions& options) {
  if (file.size() == 0 || options.request_bytes == 0 || options.depths.empty()) {
    return Status(Code::kFailed, "nothing to measure", file.path());
  }
  const Buffers buffers(options);
  const int deepest = std::max(1, *std::max_element(options.depths.begin(), options.depths.end()));
  if (buffers.bytes / static_cast<uint64_t>(deepest) < kBufferAlignment || buffers.base == nullptr)
    return Status(Code::kFailed, "no memory for the disk probe", file.path());
  std::vector<ReadRequest> requests(static_cast<size_t>(deepest) * kQueuedPerDepth);
  BandwidthProbe probe;
  const uint64_t request_bytes = AlignUp(options.request_bytes, PageBytes());
  const double slice = options.seconds_max / static_cast<double>(options.depths.size() * kRounds);
  for (int depth : options.depths) probe.samples.push_back({std::max(depth, 1), 0, 0, 0});
  for (int round = 0; round < kRounds; ++round) {
    for (BandwidthSample& sample : probe.samples) {
      ReadQueueOptions queue_options;
      queue_options.backend = options.backend;
      queue_options.depth = sample.depth;
      SLUICE_ASSIGN(auto queue, MakeReadQueue({&file}, queue_options));
      probe.backend = queue->name();
      probe.direct = queue->alignment() > 1;
      Places places(file, request_bytes, queue->alignment(), static_cast<uint64_t>(round));
      SLUICE_TRY(Measure(queue.get(), &places, request_bytes, file.size(), slice, buffers,
                         &requests, &sample));
    }
  }
  for (BandwidthSample& sample : probe.samples) {
    sample.bytes_per_s = static_cast<double>(sample.bytes) / sample.seconds;
    probe.best_bytes_per_s = std::max(probe.best_bytes_per_s, sample.bytes_per_s);
  }
  probe.best_depth = deepest;
  for (const BandwidthSample& sample : probe.samples) {
    if (sample.bytes_per_s >= 0.97 * probe.best_bytes_per_s)
      probe.best_depth = std::min(probe.best_depth, sample.depth);
  }
  return probe;
}

}  // namespace sluice
