#include "io/read_queue.h"

#include <fmt/core.h>

#include "base/log.h"
#include "io/pool_queue.h"
#include "io/uring_probe.h"
#include "io/uring_queue.h"

namespace sluice {
namespace {

constexpr const char* kDirectHint =
    "use --io buffered, or put the file on a disk that allows direct reads";

// The first file without a direct descriptor; nullptr when all have one. Nothing is ever read from
// an empty file.
const File* WithoutDirect(const std::vector<const File*>& files) {
  for (const File* file : files) {
    if (file->size() > 0 && file->direct_fd() < 0) return file;
  }
  return nullptr;
}

Result<std::unique_ptr<ReadQueue>> MakePool(const std::vector<const File*>& files, bool direct,
                                            int lanes, const std::vector<int>& cpus) {
  PoolQueueOptions options;
  options.name = direct ? "pread" : "buffered";
  options.direct = direct;
  options.lanes = lanes;
  options.cpus = cpus;
  return PoolQueue::Make(files, std::move(options));
}

// Said once per process in the log, and kept with the queue for the notices of its run.
Result<std::unique_ptr<ReadQueue>> SteppedDown(Result<std::unique_ptr<ReadQueue>> queue,
                                               const char* key, const std::string& why) {
  LogOnce(LogLevel::kNotice, key, why);
  if (queue.ok()) (*queue)->set_step_down(why);
  return queue;
}

Result<std::unique_ptr<ReadQueue>> MakeAuto(const std::vector<const File*>& files,
                                            const ReadQueueOptions& options) {
  if (const File* file = WithoutDirect(files)) {
    return SteppedDown(MakePool(files, false, options.depth, options.cpus), "io.buffered",
                       fmt::format("{}: {}; reading through the page cache (slower)", file->path(),
                                   file->direct_fault()));
  }
  const UringProbe& probe = ProbeUring();
  std::string reason = probe.reason;
  if (probe.available) {
    auto queue = UringQueue::Make(files, options);
    if (queue.ok()) return queue;
    reason = queue.status().what();
  }
  auto queue = MakePool(files, true, options.depth, options.cpus);
  if (queue.ok()) {
    return SteppedDown(std::move(queue), "io.pread",
                       fmt::format("io_uring is not available ({}); reading with {} threads",
                                   reason, options.depth));
  }
  return SteppedDown(MakePool(files, false, 1, options.cpus), "io.pool", queue.status().ToString());
}

}  // namespace

Result<std::unique_ptr<ReadQueue>> MakeReadQueue(const std::vector<const File*>& files,
                                                 const ReadQueueOptions& options) {
  if (options.backend == IoBackend::kAuto) return MakeAuto(files, options);
  if (options.backend == IoBackend::kBuffered)
    return MakePool(files, false, options.depth, options.cpus);
  if (const File* file = WithoutDirect(files)) {
    return Status(Code::kIo, file->direct_fault(), file->path(), kDirectHint);
  }
  if (options.backend == IoBackend::kPread)
    return MakePool(files, true, options.depth, options.cpus);
  const UringProbe& probe = ProbeUring();
  if (!probe.available) {
    return Status(Code::kIo, fmt::format("io_uring is not available: {}", probe.reason), "io",
                  "use --io pread");
  }
  return UringQueue::Make(files, options);
}

}  // namespace sluice
