// ReadQueue: the port through which all streamed weights arrive.
//
// Contract: single owner thread submits and reaps. A ReadRequest is owned by the caller, must stay
// alive and unmoved until its completion, and reads `length` bytes at `offset` into `buffer`.
// Offset, length and buffer must be multiples of alignment(); a request may reach past the end of
// the file by less than one alignment unit: the bytes up to `valid` (= min(length, size - offset))
// must arrive, the rest is undefined. A backend completes short reads, retries EINTR/EAGAIN, and
// reports EIO or an early end of file as the request's status with path, offset, wanted and got.
// Demand before read-ahead: kDemand requests overtake kAhead requests that have not been handed to
// the kernel. At most limits::kReadsInFlightMax requests may be outstanding. A request is cut into
// pieces of about 1 MiB; depth() pieces are in the kernel at once, and reading goes on while the
// owner computes. No allocation after construction. The destructor drops what was not begun and
// waits for what the kernel still writes into the callers' buffers. Backends: io_uring (probed in a
// child first: some seccomp filters kill), pread pool, buffered pread (page cache dropped behind
// with posix_fadvise so that the process's cgroup does not fill), and in tests memory, faulty and
// slow doubles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/file.h"

namespace sluice {

enum class IoBackend { kAuto, kUring, kPread, kBuffered };
enum class ReadPriority : uint8_t { kDemand, kAhead };

struct ReadRequest {
  uint32_t file = 0;  // index into the queue's files
  uint64_t offset = 0;
  uint64_t length = 0;
  uint8_t* buffer = nullptr;
  ReadPriority priority = ReadPriority::kDemand;
  uint64_t tag = 0;  // the caller's

  // Written by the queue, in Submit, Poll and Wait only.
  bool done = false;
  Status status;
  uint64_t submit_ns = 0, done_ns = 0;
  uint32_t slot = 0;  // the queue's own
};

class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  virtual const char* name() const = 0;    // "uring", "pread", "buffered", ...
  virtual uint32_t alignment() const = 0;  // bytes
  virtual int depth() const = 0;
  virtual void Submit(ReadRequest* request) = 0;
  // Reaps finished requests without waiting; returns how many completed in this call.
  virtual int Poll() = 0;
  // Waits until `request` is done (reaping others too) and returns its status.
  virtual Status Wait(ReadRequest* request) = 0;
  // Takes back a request the kernel has not seen yet; true when it will not be read (done stays
  // false).
  virtual bool Cancel(ReadRequest* request) = 0;
  virtual int outstanding() const = 0;
  virtual uint64_t bytes_read() const = 0;  // delivered by the backend so far, alignment included
  // Why it is not the backend that was hoped for; empty when it is.
  const std::string& step_down() const { return step_down_; }
  void set_step_down(std::string why) { step_down_ = std::move(why); }

 private:
  std::string step_down_;
};

struct ReadQueueOptions {
  IoBackend backend = IoBackend::kAuto;
  int depth =
      8;  // requests in the kernel at once; 2-4 of 1 MiB saturate NVMe-class disks (FIELD 1e)
  // Memory that buffers will lie in, for registration with io_uring; may be empty.
  std::vector<MutableByteSpan> registered;
  std::vector<int> cpus;  // processors that the queue's own threads run on; empty: any
};

// Files must outlive the queue. kAuto tries uring, then pread with O_DIRECT, then buffered; each
// step down is logged once as a notice. A forced backend that does not work is kIo with a hint.
Result<std::unique_ptr<ReadQueue>> MakeReadQueue(const std::vector<const File*>& files,
                                                 const ReadQueueOptions& options);

}  // namespace sluice
