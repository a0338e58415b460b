// ReadQueue on io_uring with direct descriptors.
//
// Contract: as read_queue.h; made only after ProbeUring said yes. Files and buffers are registered
// where the kernel allows it (a refusal costs a little time per read, nothing else). One helper
// thread, the pump, keeps the kernel's queue full while the owner computes; it sleeps when nothing
// is queued and while the owner itself waits. The mutex guards the board and both rings' user side.
//
// Invariants: completions are taken from the ring under the mutex, by the owner only while
// owner_waits_ is set; so a completion the owner waits for can never be taken between its check and
// its sleep in the kernel. The ring is made without SINGLE_ISSUER or DEFER_TASKRUN: two threads
// submit.
#pragma once

#include <liburing.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/raw_read.h"
#include "io/read_queue.h"
#include "io/request_board.h"

namespace sluice {

class UringQueue : public ReadQueue {
 public:
  static Result<std::unique_ptr<ReadQueue>> Make(const std::vector<const File*>& files,
                                                 const ReadQueueOptions& options);
  ~UringQueue() override;

  const char* name() const override { return "uring"; }
  uint32_t alignment() const override { return board_.alignment(); }
  int depth() const override { return static_cast<int>(entries_.size()); }
  void Submit(ReadRequest* request) override;
  int Poll() override;
  Status Wait(ReadRequest* request) override;
  bool Cancel(ReadRequest* request) override;
  int outstanding() const override;
  uint64_t bytes_read() const override;

  bool files_registered() const { return files_registered_; }
  bool buffers_registered() const { return !iovecs_.empty(); }

 private:
  UringQueue(const std::vector<const File*>& files, const ReadQueueOptions& options);
  Status Init(const std::vector<MutableByteSpan>& registered);
  void RegisterBuffers(const std::vector<MutableByteSpan>& registered);
  int BufferIndex(const Piece& piece) const;

  // With the mutex held.
  int Issue();  // moves queued pieces into the kernel; an errno when it refuses
  void TakeCompletions();
  void Complete(uint32_t entry, int result);

  void Pump();
  void WakePump();

  const RawRead read_ = SystemRead();
  const std::vector<int> cpus_;
  io_uring ring_ = {};
  bool ring_ready_ = false, files_registered_ = false;
  std::vector<iovec> iovecs_;  // registered, ascending

  mutable std::mutex mutex_;
  std::condition_variable pump_;
  RequestBoard board_;
  std::vector<Piece> entries_;  // in the kernel, by user_data
  std::vector<uint32_t> free_entries_;
  bool owner_waits_ = false, stop_ = false;
  std::thread pump_thread_;
};

}  // namespace sluice
