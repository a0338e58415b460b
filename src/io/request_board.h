// The bookkeeping every backend shares: requests in, pieces out, completions back.
//
// Contract: not thread-safe; a backend with threads guards it with its own mutex. Fixed number of
// slots, no allocation after construction. A request is cut into equal pieces of at most
// piece_bytes_max so that one large read keeps the device's queue busy and never meets the kernel's
// 2 GiB cut. Next() hands out demand pieces in order of submission, then read-ahead; a piece handed
// out is taken to be in the kernel. The first failing piece decides the request's status and its
// remaining pieces are dropped. Reap() is the only place where a ReadRequest's result fields are
// written, so the owner never races with a reading thread.
#pragma once

#include <cstdint>
#include <vector>

#include "io/raw_read.h"
#include "io/read_queue.h"

namespace sluice {

// What Wait answers for a request that is not with the queue and was never done.
Status NeverSubmitted();

class RequestBoard {
 public:
  RequestBoard(std::vector<const File*> files, uint32_t alignment, uint64_t piece_bytes_max);

  void Submit(ReadRequest* request);
  // True when no piece of it was handed out yet; the slot is free again.
  bool Cancel(ReadRequest* request);
  bool Knows(const ReadRequest* request) const;
  // Publishes finished requests to their owners; returns how many.
  int Reap();

  bool Next(Piece* piece);
  // True when the piece was the last one of its request.
  bool Finish(const Piece& piece, Status status);

  bool queued() const { return demand_.head != kNone || ahead_.head != kNone; }
  bool finished() const { return finished_.head != kNone; }
  int outstanding() const { return outstanding_; }
  int in_kernel() const { return in_kernel_; }
  uint64_t bytes_read() const { return bytes_read_; }
  uint32_t alignment() const { return alignment_; }
  const std::vector<const File*>& files() const { return files_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    ReadRequest* request = nullptr;
    uint64_t issued = 0;       // bytes handed out
    uint64_t piece_bytes = 0;  // of each piece but the last
    uint32_t in_kernel = 0;
    bool failed = false;
    Status status;
    uint64_t done_ns = 0;
    uint32_t previous = kNone, next = kNone;
  };
  struct List {
    uint32_t head = kNone, tail = kNone;
  };

  void Append(List* list, uint32_t slot);
  void Remove(List* list, uint32_t slot);
  List* QueueOf(const Slot& slot) {
    return slot.request->priority == ReadPriority::kDemand ? &demand_ : &ahead_;
  }
  Status Check(const ReadRequest& request) const;

  const std::vector<const File*> files_;
  const uint32_t alignment_;
  const uint64_t piece_bytes_max_;
  std::vector<Slot> slots_;
  List free_, demand_, ahead_, finished_;
  int outstanding_ = 0, in_kernel_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace sluice
