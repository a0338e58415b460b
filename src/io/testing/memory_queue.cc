#include "io/testing/memory_queue.h"

#include <fmt/core.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"

namespace sluice::testing {
namespace {

// Index of the request that goes next: the oldest demand, else the oldest read-ahead.
size_t NextIndex(const std::vector<ReadRequest*>& requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->priority == ReadPriority::kDemand) return i;
  }
  return 0;
}

bool Erase(std::vector<ReadRequest*>* requests, const ReadRequest* request) {
  auto it = std::find(requests->begin(), requests->end(), request);
  if (it == requests->end()) return false;
  requests->erase(it);
  return true;
}

bool Contains(const std::vector<ReadRequest*>& requests, const ReadRequest* request) {
  return std::find(requests.begin(), requests.end(), request) != requests.end();
}

Status NeverSubmitted() {
  return Status(Code::kFailed, "waited for a read that is not with the queue");
}

void Begin(ReadRequest* request) {
  request->done = false;
  request->status = Status();
  request->submit_ns = NowNanos();
}

bool Refuse(ReadRequest* request, size_t outstanding) {
  if (outstanding < limits::kReadsInFlightMax) return false;
  request->status = Status(Code::kFailed, "too many reads outstanding");
  request->done = true;
  return true;
}

}  // namespace

MemoryQueue::MemoryQueue(std::vector<ByteSpan> files, int depth, uint32_t alignment,
                         std::function<Status(const ReadRequest&)> fail)
    : files_(std::move(files)), depth_(depth), alignment_(alignment), fail_(std::move(fail)) {
  waiting_.reserve(limits::kReadsInFlightMax);
}

void MemoryQueue::Submit(ReadRequest* request) {
  Begin(request);
  if (!Refuse(request, waiting_.size())) waiting_.push_back(request);
}

bool MemoryQueue::CompleteNext() {
  if (waiting_.empty()) return false;
  const size_t index = NextIndex(waiting_);
  ReadRequest* request = waiting_[index];
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(index));
  const ByteSpan file = request->file < files_.size() ? files_[request->file] : ByteSpan();
  const uint64_t there = request->offset < file.size() ? file.size() - request->offset : 0;
  const uint64_t valid = std::min(request->length, there);
  const uint64_t address = reinterpret_cast<uintptr_t>(request->buffer);
  if (fail_) request->status = fail_(*request);
  if (request->status.ok() && ((request->offset | request->length | address) & (alignment_ - 1))) {
    request->status =
        Status(Code::kFailed, fmt::format("read is not a multiple of {} bytes", alignment_));
  } else if (request->status.ok() && request->length > 0 &&
             (valid == 0 || request->length - valid >= 64 * kKiB)) {
    request->status = ReadError("memory", request->offset, request->length, valid, 0);
  }
  if (request->status.ok()) {
    if (valid > 0) memcpy(request->buffer, file.data() + request->offset, valid);
    bytes_read_ += request->length;
  }
  request->done_ns = NowNanos();
  request->done = true;
  return true;
}

int MemoryQueue::Poll() {
  int count = 0;
  while (count < depth_ && CompleteNext()) ++count;
  return count;
}

Status MemoryQueue::Wait(ReadRequest* request) {
  while (!request->done) {
    if (!Contains(waiting_, request)) return NeverSubmitted();
    CompleteNext();
  }
  return request->status;
}

bool MemoryQueue::Cancel(ReadRequest* request) { return Erase(&waiting_, request); }

SlowQueue::SlowQueue(std::unique_ptr<ReadQueue> inner, uint64_t seed, uint64_t delay_ns, int depth)
    : inner_(std::move(inner)), delay_ns_(delay_ns), depth_(depth), state_(seed * 2 + 1) {
  queued_.reserve(limits::kReadsInFlightMax);
  held_.reserve(limits::kReadsInFlightMax);
}

void SlowQueue::Submit(ReadRequest* request) {
  Begin(request);
  if (Refuse(request, queued_.size() + held_.size())) return;
  queued_.push_back(request);
  Fill();
}

void SlowQueue::Fill() {
  while (!queued_.empty() && held_.size() < static_cast<size_t>(depth_)) {
    const size_t index = NextIndex(queued_);
    held_.push_back(queued_[index]);
    queued_.erase(queued_.begin() + static_cast<ptrdiff_t>(index));
  }
}

ReadRequest* SlowQueue::ReleaseOne() {
  if (held_.empty()) return nullptr;
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  const size_t index = static_cast<size_t>((state_ >> 33) % held_.size());
  ReadRequest* request = held_[index];
  const uint64_t submitted = request->submit_ns;
  if (NowNanos() - submitted < delay_ns_) return nullptr;
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
  inner_->Submit(request);
  const Status status = inner_->Wait(request);
  (void)status;  // the request carries it to its owner
  request->submit_ns = submitted;
  Fill();
  return request;
}

int SlowQueue::Poll() { return ReleaseOne() != nullptr ? 1 : 0; }

Status SlowQueue::Wait(ReadRequest* request) {
  while (!request->done) {
    if (!Contains(held_, request) && !Contains(queued_, request)) return NeverSubmitted();
    if (ReleaseOne() == nullptr) {
      const timespec pause = {0, 50000};
      nanosleep(&pause, nullptr);
    }
  }
  return request->status;
}

bool SlowQueue::Cancel(ReadRequest* request) { return Erase(&queued_, request); }

}  // namespace sluice::testing
