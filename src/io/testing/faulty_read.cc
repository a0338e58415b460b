#include "io/testing/faulty_read.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace sluice::testing {
namespace {

ssize_t Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

RawRead MakeFaultyRead(const FaultPlan& plan, std::shared_ptr<std::atomic<int64_t>> calls) {
  if (calls == nullptr) calls = std::make_shared<std::atomic<int64_t>>(0);
  return [plan, calls](int fd, void* buffer, size_t bytes, off_t offset) -> ssize_t {
    const int64_t call = calls->fetch_add(1);
    if (plan.sleep_us > 0) {
      const timespec pause = {static_cast<time_t>(plan.sleep_us / 1000000),
                              static_cast<long>(plan.sleep_us % 1000000 * 1000)};
      nanosleep(&pause, nullptr);
    }
    if (fd == plan.refused_fd) return Fail(EINVAL);
    if (plan.eintr_every_second && call % 2 == 0) return Fail(EINTR);
    if (plan.eagain_every_third && call % 3 == 0) return Fail(EAGAIN);
    if (plan.eio_at_read >= 0 && call >= plan.eio_at_read) return Fail(EIO);
    for (const auto& [at, at_eof] :
         {std::pair(plan.eio_at_byte, false), std::pair(plan.eof_at_byte, true)}) {
      if (at < 0) continue;
      if (offset >= at) return at_eof ? 0 : Fail(EIO);
      bytes = std::min<size_t>(bytes, static_cast<size_t>(at - offset));
    }
    if (plan.short_bytes_max > 0) bytes = std::min<size_t>(bytes, plan.short_bytes_max);
    return pread(fd, buffer, bytes, offset);
  };
}

Result<std::unique_ptr<ReadQueue>> MakeFaultyQueue(const std::vector<const File*>& files,
                                                   const FaultPlan& plan, int lanes, bool direct) {
  PoolQueueOptions options;
  options.name = "faulty";
  options.direct = direct;
  options.lanes = lanes;
  options.read = MakeFaultyRead(plan);
  return PoolQueue::Make(files, std::move(options));
}

}  // namespace sluice::testing
