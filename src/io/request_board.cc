#include "io/request_board.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"

namespace sluice {
namespace {

constexpr uint64_t kOverreachMax = 64 * kKiB;  // the largest alignment a caller may have padded to

}  // namespace

Status NeverSubmitted() {
  return Status(Code::kFailed, "waited for a read that is not with the queue", "io",
                "submit it first");
}

RequestBoard::RequestBoard(std::vector<const File*> files, uint32_t alignment,
                           uint64_t piece_bytes_max)
    : files_(std::move(files)),
      alignment_(alignment),
      piece_bytes_max_(piece_bytes_max),
      slots_(limits::kReadsInFlightMax) {
  for (uint32_t i = 0; i < slots_.size(); ++i) Append(&free_, i);
}

void RequestBoard::Append(List* list, uint32_t slot) {
  slots_[slot].previous = list->tail;
  slots_[slot].next = kNone;
  (list->tail == kNone ? list->head : slots_[list->tail].next) = slot;
  list->tail = slot;
}

void RequestBoard::Remove(List* list, uint32_t slot) {
  const Slot& s = slots_[slot];
  (s.previous == kNone ? list->head : slots_[s.previous].next) = s.next;
  (s.next == kNone ? list->tail : slots_[s.next].previous) = s.previous;
}

Status RequestBoard::Check(const ReadRequest& request) const {
  if (request.file >= files_.size()) {
    return Status(Code::kFailed, "read from a file the queue does not know",
                  fmt::format("file {}", request.file));
  }
  const File& file = *files_[request.file];
  const uint64_t address = reinterpret_cast<uintptr_t>(request.buffer);
  if ((request.offset | request.length | address) & (alignment_ - 1)) {
    return Status(
        Code::kFailed, fmt::format("read is not a multiple of {} bytes", alignment_),
        fmt::format("{}, offset {}, {} bytes", file.path(), request.offset, request.length));
  }
  const uint64_t there = request.offset < file.size() ? file.size() - request.offset : 0;
  if (request.length > there && (there == 0 || request.length - there >= kOverreachMax)) {
    return ReadError(file.path(), request.offset, request.length, there, 0);
  }
  return Status();
}

void RequestBoard::Submit(ReadRequest* request) {
  request->done = false;
  request->status = Status();
  request->submit_ns = NowNanos();
  const uint32_t index = free_.head;
  if (index == kNone) {
    request->status = Status(Code::kFailed, "too many reads outstanding",
                             fmt::format("limit {}", limits::kReadsInFlightMax),
                             "reap some before submitting more");
    request->done = true;
    return;
  }
  Remove(&free_, index);
  Slot& slot = slots_[index];
  slot.request = request;
  slot.issued = 0;
  slot.in_kernel = 0;
  request->slot = index;
  ++outstanding_;
  slot.status = Check(*request);
  slot.failed = !slot.status.ok();
  if (slot.failed || request->length == 0) {
    slot.done_ns = request->submit_ns;
    Append(&finished_, index);
    return;
  }
  const uint64_t pieces = (request->length + piece_bytes_max_ - 1) / piece_bytes_max_;
  const uint64_t granule = std::max<uint64_t>(alignment_, PageBytes());
  slot.piece_bytes = AlignUp((request->length + pieces - 1) / pieces, granule);
  Append(QueueOf(slot), index);
}

bool RequestBoard::Knows(const ReadRequest* request) const {
  return request->slot < slots_.size() && slots_[request->slot].request == request;
}

bool RequestBoard::Cancel(ReadRequest* request) {
  if (!Knows(request)) return false;
  Slot& slot = slots_[request->slot];
  if (slot.failed || slot.issued > 0 || request->length == 0) return false;
  Remove(QueueOf(slot), request->slot);
  slot.request = nullptr;
  Append(&free_, request->slot);
  --outstanding_;
  return true;
}

bool RequestBoard::Next(Piece* piece) {
  List* queue = demand_.head != kNone ? &demand_ : &ahead_;
  const uint32_t index = queue->head;
  if (index == kNone) return false;
  Slot& slot = slots_[index];
  const ReadRequest& request = *slot.request;
  piece->file = files_[request.file];
  piece->offset = request.offset + slot.issued;
  piece->length = std::min(slot.piece_bytes, request.length - slot.issued);
  piece->valid = piece->offset < piece->file->size()
                     ? std::min(piece->length, piece->file->size() - piece->offset)
                     : 0;
  piece->buffer = request.buffer + slot.issued;
  piece->slot = index;
  slot.issued += piece->length;
  ++slot.in_kernel;
  ++in_kernel_;
  if (slot.issued == request.length) Remove(queue, index);
  return true;
}

bool RequestBoard::Finish(const Piece& piece, Status status) {
  Slot& slot = slots_[piece.slot];
  --slot.in_kernel;
  --in_kernel_;
  const bool was_queued = !slot.failed && slot.issued < slot.request->length;
  if (status.ok()) {
    bytes_read_ += piece.length;
  } else if (!slot.failed) {
    if (was_queued) Remove(QueueOf(slot), piece.slot);
    slot.failed = true;
    slot.status = std::move(status);
  }
  if (slot.in_kernel > 0 || (!slot.failed && was_queued)) return false;
  slot.done_ns = NowNanos();
  Append(&finished_, piece.slot);
  return true;
}

int RequestBoard::Reap() {
  int count = 0;
  while (finished_.head != kNone) {
    const uint32_t index = finished_.head;
    Remove(&finished_, index);
    Slot& slot = slots_[index];
    ReadRequest* request = std::exchange(slot.request, nullptr);
    request->status = std::move(slot.status);
    slot.status = Status();
    request->done_ns = slot.done_ns;
    request->done = true;
    Append(&free_, index);
    --outstanding_;
    ++count;
  }
  return count;
}

}  // namespace sluice
