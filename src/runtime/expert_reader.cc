#include "runtime/expert_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

constexpr uint32_t kMxBlock = 32, kMxBytes = 17;

// One row of Hugging Face's MXFP4 (nibbles pairwise: element 2i low, 2i+1 high; scales apart) to
// blocks of a scale byte and nibbles j, j + 16.
void RepackMxfp4Row(const uint8_t* codes, const uint8_t* scales, uint32_t blocks, uint8_t* out) {
  for (uint32_t b = 0; b < blocks; ++b, codes += kMxBlock / 2, out += kMxBytes) {
    uint8_t code[kMxBlock];
    for (uint32_t i = 0; i < kMxBlock / 2; ++i) {
      code[2 * i] = codes[i] & 15;
      code[2 * i + 1] = codes[i] >> 4;
    }
    out[0] = scales[b];
    for (uint32_t j = 0; j < kMxBlock / 2; ++j) {
      out[1 + j] = static_cast<uint8_t>(code[j] | code[j + kMxBlock / 2] << 4);
    }
  }
}

// in [rows][cols] of `size`-byte elements -> out [cols / step][rows], taking every step-th column
// from `first`.
void Transpose(const uint8_t* in, uint32_t rows, uint32_t cols, uint32_t first, uint32_t step,
               uint64_t size, uint8_t* out) {
  for (uint32_t r = 0; r < rows; ++r) {
    const uint8_t* row = in + uint64_t{r} * cols * size;
    for (uint32_t c = first, i = 0; c < cols; c += step, ++i) {
      std::memcpy(out + (uint64_t{i} * rows + r) * size, row + c * size, size);
    }
  }
}

uint64_t MxRowBytes(uint32_t cols) { return uint64_t{cols} / kMxBlock * kMxBytes; }

}  // namespace

ExpertReader::ExpertReader(const ModelMap* map, const MemoryPlan* plan, uint64_t alignment,
                           uint8_t* staging)
    : map_(map),
      sizes_(&plan->experts),
      alignment_(alignment),
      staging_(staging),
      flights_(kFlightsMax) {}

ExpertReader::Place ExpertReader::PlaceOf(const ExpertPart& part, uint32_t expert,
                                          uint64_t region) const {
  const Extent e = part.At(expert);
  Place place;
  place.offset = AlignDown(e.offset, alignment_);
  place.skip = e.offset - place.offset;
  place.length = AlignUp(e.offset + e.bytes, alignment_) - place.offset;
  place.region = region;
  return place;
}

void ExpertReader::AddRead(Flight* flight, const ExpertPart& part, uint32_t expert, uint8_t* base,
                           uint64_t region, ReadPriority priority) {
  if (part.first.extent.bytes == 0) return;
  const Place place = PlaceOf(part, expert, region);
  ReadRequest& read = flight->read[flight->reads++];
  read = {};
  read.file = part.At(expert).file;
  read.offset = place.offset;
  read.length = place.length;
  read.buffer = base + place.region;
  read.priority = priority;
  queue_->Submit(&read);
}

ExpertReader::Flight* ExpertReader::Start(uint32_t layer, uint32_t expert, uint8_t* data,
                                          ReadPriority priority) {
  const ExpertSpec& spec = Spec(layer);
  if (Staged(spec) && staging_busy_) return nullptr;
  const auto free =
      std::find_if(flights_.begin(), flights_.end(), [](const Flight& f) { return !f.active; });
  if (free == flights_.end()) return nullptr;
  Flight& flight = *free;
  flight.layer = layer;
  flight.expert = expert;
  flight.data = data;
  flight.active = true;
  flight.ahead = priority == ReadPriority::kAhead;
  flight.reads = 0;
  ++active_;
  uint64_t region = 0;
  if (Staged(spec)) {
    staging_busy_ = true;
    for (size_t p = 0; p < 3; ++p) {
      for (const ExpertPart* part : {&spec.part[p], &spec.scales[p]}) {
        if (part->first.extent.bytes == 0) continue;
        AddRead(&flight, *part, expert, staging_, region, priority);
        region += AlignUp(part->first.extent.bytes, alignment_) + alignment_;
      }
    }
    return &flight;
  }
  for (size_t p = 0; p < 3; ++p) {
    AddRead(&flight, spec.part[p], expert, data, region, priority);
    region += sizes_->part_bytes[p];
  }
  return &flight;
}

bool ExpertReader::Complete(const Flight& flight) const {
  for (uint32_t i = 0; i < flight.reads; ++i) {
    if (!flight.read[i].done) return false;
  }
  return true;
}

Status ExpertReader::Wait(Flight* flight) {
  Status first;
  for (uint32_t i = 0; i < flight->reads; ++i) {
    const Status status = queue_->Wait(&flight->read[i]);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

Status ExpertReader::Finish(Flight* flight) {
  Status first;
  for (uint32_t i = 0; i < flight->reads && first.ok(); ++i) first = flight->read[i].status;
  const bool staged = Staged(Spec(flight->layer));
  if (first.ok() && staged) Convert(*flight);
  if (staged) staging_busy_ = false;
  flight->active = false;
  --active_;
  if (first.ok()) return {};
  return Status(
      first.code(), first.what(),
      fmt::format("layer {}, expert {}, {}", flight->layer, flight->expert, first.where()),
      first.hint());
}

void ExpertReader::Promote(Flight* flight) {
  if (!flight->ahead) return;
  flight->ahead = false;
  for (uint32_t i = 0; i < flight->reads; ++i) {
    ReadRequest& read = flight->read[i];
    if (read.done || !queue_->Cancel(&read)) continue;
    read.priority = ReadPriority::kDemand;
    queue_->Submit(&read);
  }
}

bool ExpertReader::Cancel(Flight* flight) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < flight->reads; ++i) kept += flight->read[i].done ? 1u : 0u;
  if (kept > 0) return false;  // partly here already: let it finish, it may be of use
  for (uint32_t i = 0; i < flight->reads; ++i) {
    if (queue_->Cancel(&flight->read[i])) continue;
    // The kernel has this one: put the others back and let the flight complete.
    for (uint32_t j = 0; j < i; ++j) queue_->Submit(&flight->read[j]);
    return false;
  }
  if (Staged(Spec(flight->layer))) staging_busy_ = false;
  flight->active = false;
  --active_;
  return true;
}

void ExpertReader::Convert(const Flight& flight) const {
  const ExpertSpec& spec = Spec(flight.layer);
  const MatrixSpec &gate_up = spec.part[0].first, &down = spec.part[2].first;
  const uint8_t* source[3] = {nullptr, nullptr, nullptr};
  const uint8_t* scales[3] = {nullptr, nullptr, nullptr};
  uint64_t region = 0;
  for (size_t p = 0; p < 3; ++p) {
    for (auto [part, at] :
         {std::pair(&spec.part[p], &source[p]), std::pair(&spec.scales[p], &scales[p])}) {
      if (part->first.extent.bytes == 0) continue;
      const Place place = PlaceOf(*part, flight.expert, region);
      *at = staging_ + region + place.skip;
      region += AlignUp(part->first.extent.bytes, alignment_) + alignment_;
    }
  }
  uint8_t* gate = flight.data;
  uint8_t* last = flight.data + sizes_->part_bytes[0] + sizes_->part_bytes[1];
  if (spec.layout == ExpertLayout::kTransposed) {
    const uint64_t size = gate_up.row_bytes / gate_up.cols;
    uint8_t* up = gate + uint64_t{gate_up.cols} / 2 * gate_up.rows * size;
    Transpose(source[0], gate_up.rows, gate_up.cols, 0, 2, size, gate);
    Transpose(source[0], gate_up.rows, gate_up.cols, 1, 2, size, up);
    Transpose(source[2], down.rows, down.cols, 0, 1, size, last);
    return;
  }
  const auto repack = [](const MatrixSpec& m, const uint8_t* codes, const uint8_t* scale,
                         uint32_t first, uint32_t step, uint8_t* out) {
    const uint32_t blocks = m.cols / kMxBlock;
    for (uint32_t r = first; r < m.rows; r += step, out += MxRowBytes(m.cols)) {
      RepackMxfp4Row(codes + uint64_t{r} * m.cols / 2, scale + uint64_t{r} * blocks, blocks, out);
    }
  };
  repack(gate_up, source[0], scales[0], 0, 2, gate);
  repack(gate_up, source[0], scales[0], 1, 2, gate + gate_up.rows / 2 * MxRowBytes(gate_up.cols));
  repack(down, source[2], scales[2], 0, 1, last);
}

ExpertWeights ExpertReader::View(uint32_t layer, uint32_t expert, const uint8_t* data) const {
  const ExpertSpec& spec = Spec(layer);
  const MatrixSpec &first = spec.part[0].first, &down = spec.part[2].first;
  const uint8_t* last = data + sizes_->part_bytes[0] + sizes_->part_bytes[1];
  ExpertWeights w;
  const auto plain = [&](size_t p, uint64_t region) {
    const MatrixSpec& m = spec.part[p].first;
    return Matrix{data + region + PlaceOf(spec.part[p], expert, 0).skip, m.type, m.rows, m.cols,
                  m.row_bytes};
  };
  switch (spec.layout) {
    case ExpertLayout::kPlain:
      w.gate = plain(0, 0);
      w.up = plain(1, sizes_->part_bytes[0]);
      w.down = plain(2, sizes_->part_bytes[0] + sizes_->part_bytes[1]);
      break;
    case ExpertLayout::kInterleaved:
      w.gate = plain(0, 0);
      w.gate.rows /= 2;
      w.up = w.gate;
      w.up.data += first.row_bytes;
      w.gate.row_bytes = w.up.row_bytes = 2 * first.row_bytes;
      w.down = plain(2, sizes_->part_bytes[0] + sizes_->part_bytes[1]);
      break;
    case ExpertLayout::kTransposed: {
      const uint64_t size = first.row_bytes / first.cols;
      w.gate = {data, first.type, first.cols / 2, first.rows, first.rows * size};
      w.up = w.gate;
      w.up.data += w.gate.rows * w.gate.row_bytes;
      w.down = {last, down.type, down.cols, down.rows, down.rows * size};
      break;
    }
    case ExpertLayout::kHfMxfp4:
      w.gate = {data, WeightType::kMXFP4, first.rows / 2, first.cols, MxRowBytes(first.cols)};
      w.up = w.gate;
      w.up.data += w.gate.rows * w.gate.row_bytes;
      w.down = {last, WeightType::kMXFP4, down.rows, down.cols, MxRowBytes(down.cols)};
      break;
  }
  return w;
}

uint64_t ExpertReader::ExpertBytes(uint32_t layer) const {
  uint64_t bytes = 0;
  for (size_t p = 0; p < 3; ++p) {
    bytes += Spec(layer).part[p].first.extent.bytes + Spec(layer).scales[p].first.extent.bytes;
  }
  return bytes;
}

}  // namespace sluice
