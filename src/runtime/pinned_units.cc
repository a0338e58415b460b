#include "runtime/pinned_units.h"

#include <algorithm>

#include "base/limits.h"

namespace sluice {
namespace {

// With the queue at one time; the rest of its places is for experts (3 each) and embedding rows.
constexpr size_t kInFlightMax = limits::kReadsInFlightMax / 5;
// Neighbouring reads become one request, which the queue cuts again: a few requests cover a whole
// model, so that reading goes on while nobody is there to submit more.
constexpr uint64_t kRequestBytesMax = 32 * kMiB;

}  // namespace

void PinnedUnits::Add(uint32_t unit, const UnitLayout& layout, uint8_t* data) {
  const size_t first = reads_.size();
  for (const UnitRead& read : layout.reads) {
    uint8_t* buffer = data + read.buffer_offset;
    ReadRequest* last = reads_.size() > first ? &reads_.back() : nullptr;
    if (last != nullptr && last->file == read.file && last->offset + last->length == read.offset &&
        last->buffer + last->length == buffer && last->length + read.length <= kRequestBytesMax) {
      last->length += read.length;
      continue;
    }
    ReadRequest request;
    request.file = read.file;
    request.offset = read.offset;
    request.length = read.length;
    request.buffer = buffer;
    request.priority = ReadPriority::kAhead;
    reads_.push_back(std::move(request));
  }
  units_.push_back({unit, first, reads_.size() - first, false});
}

void PinnedUnits::Begin(ReadQueue* queue) {
  queue_ = queue;
  submitted_.assign(reads_.size(), 0);
  Fill();
}

void PinnedUnits::Fill() {
  size_t in_flight = 0;
  for (size_t i = 0; i < reads_.size() && in_flight < kInFlightMax; ++i) {
    if (!submitted_[i]) queue_->Submit(&reads_[i]);
    submitted_[i] = 1;
    in_flight += reads_[i].done ? 0 : 1;
  }
}

size_t PinnedUnits::IndexOf(uint32_t unit) const {
  const auto at =
      std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return u.id == unit; });
  return static_cast<size_t>(at - units_.begin());
}

std::vector<uint32_t> PinnedUnits::ids() const {
  std::vector<uint32_t> ids;
  for (const Unit& unit : units_) ids.push_back(unit.id);
  return ids;
}

std::span<const ReadRequest> PinnedUnits::reads(uint32_t unit) const {
  const size_t i = IndexOf(unit);
  if (i == units_.size()) return {};
  return std::span<const ReadRequest>(reads_).subspan(units_[i].first, units_[i].n);
}

bool PinnedUnits::Waited(uint32_t unit) const {
  if (complete()) return true;
  const size_t i = IndexOf(unit);
  return i == units_.size() || units_[i].waited;
}

bool PinnedUnits::Ready(uint32_t unit) const {
  const std::span<const ReadRequest> all = reads(unit);
  return !all.empty() && std::all_of(all.begin(), all.end(),
                                     [](const ReadRequest& r) { return r.done && r.status.ok(); });
}

// What has not begun goes to the front of the queue. What failed while nobody waited is read again,
// so that only a fault of now ends a request.
void PinnedUnits::Urge(const Unit& unit) {
  for (size_t i = unit.first; i < unit.first + unit.n; ++i) {
    ReadRequest& read = reads_[i];
    if (submitted_[i] && read.done && read.status.ok()) continue;
    if (submitted_[i] && !read.done &&
        (read.priority == ReadPriority::kDemand || !queue_->Cancel(&read)))
      continue;
    read.priority = ReadPriority::kDemand;
    queue_->Submit(&read);
    submitted_[i] = 1;
  }
}

Status PinnedUnits::Wait(uint32_t id) {
  if (Waited(id)) return {};
  Unit& unit = units_[IndexOf(id)];
  Urge(unit);
  Status error;
  for (size_t i = unit.first; i < unit.first + unit.n; ++i) {
    const Status status = queue_->Wait(&reads_[i]);
    if (!status.ok() && error.ok()) error = status;
  }
  Fill();
  if (!error.ok()) return error;
  unit.waited = true;
  ++waited_;
  return {};
}

uint64_t PinnedUnits::bytes_done() const {
  uint64_t bytes = 0;
  for (const ReadRequest& read : reads_) bytes += read.done && read.status.ok() ? read.length : 0;
  return bytes;
}

}  // namespace sluice
