#include "runtime/weight_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace sluice {
namespace {

void Transform(VectorTransform transform, float* v, uint64_t n) {
  if (transform == VectorTransform::kPlusOne) {
    for (uint64_t i = 0; i < n; ++i) v[i] += 1;
  } else if (transform == VectorTransform::kNegExp) {
    for (uint64_t i = 0; i < n; ++i) v[i] = -std::exp(v[i]);
  }
}

ReadRequest MakeRequest(const UnitRead& read, uint8_t* data, ReadPriority priority) {
  ReadRequest request;
  request.file = read.file;
  request.offset = read.offset;
  request.length = read.length;
  request.buffer = data + read.buffer_offset;
  request.priority = priority;
  return request;
}

}  // namespace

Result<std::unique_ptr<WeightStream>> WeightStream::Make(Context context) {
  std::unique_ptr<WeightStream> s(new WeightStream(std::move(context)));
  const MemoryPlan& plan = *s->c_.plan;
  const ModelMap& map = *s->c_.map;
  SLUICE_ASSIGN(s->pinned_,
                Arena::Make(s->c_.ledger, "pinned weights", plan.pinned_bytes, Touch::kLater));
  SLUICE_ASSIGN(s->vectors_,
                Arena::Make(s->c_.ledger, "norms and biases", plan.vector_bytes, Touch::kLazily));
  SLUICE_ASSIGN(s->derived_,
                Arena::Make(s->c_.ledger, "norms and biases", plan.derived_bytes, Touch::kLazily));
  SLUICE_ASSIGN(s->ring_, Arena::Make(s->c_.ledger, "ring", plan.ring_slots * plan.ring_slot_bytes,
                                      Touch::kNow));
  s->layers_.resize(map.layers.size());
  for (uint32_t i = 0; i < map.layers.size(); ++i) {
    s->layers_[i].layer = i;
    s->matrices_.push_back(LayerMatrices(map.layers[i]));
    std::vector<size_t> roles;
    for (const MatrixSpec* m : s->matrices_.back()) {
      for (size_t r = 0; r < map.layers[i].matrix.size(); ++r) {
        if (map.layers[i].matrix[r] && &*map.layers[i].matrix[r] == m) roles.push_back(r);
      }
    }
    s->roles_.push_back(std::move(roles));
  }
  s->slots_.resize(plan.ring_slots);
  for (size_t i = 0; i < s->slots_.size(); ++i) {
    s->slots_[i].data = s->ring_.data() + i * plan.ring_slot_bytes;
    s->slots_[i].reads.resize(128);
  }
  s->head_parts_ = plan.head_pinned ? 1 : static_cast<uint32_t>(plan.head_slabs.size());
  s->heads_.resize(s->head_parts_);
  s->head_rows_.resize(s->head_parts_);
  return s;
}

std::vector<MutableByteSpan> WeightStream::PinnedMemory() const {
  return pinned_.size() > 0 ? std::vector{pinned_.span()} : std::vector<MutableByteSpan>();
}

Status WeightStream::BeginPinned(ReadQueue* queue) {
  queue_ = queue;
  SLUICE_TRY(LoadVectors());
  PlacePinned();
  pinned_units_.Begin(queue);
  return {};
}

Status WeightStream::FinishPinned() {
  for (uint32_t unit : pinned_units_.ids()) SLUICE_TRY(AwaitPinned(unit));
  return {};
}

void WeightStream::Start(ReadQueue* queue) {
  queue_ = queue;
  const uint32_t units = static_cast<uint32_t>(layers_.size() + c_.plan->slab_units.size());
  for (uint32_t u = 0; u < units && !anything_streams_; ++u) anything_streams_ = Streams(u);
  if (!anything_streams_) return;
  last_issued_ = units - 1;  // so that the first read-ahead starts with the first streamed unit
  ReadAhead();
}

Status WeightStream::LoadVector(const VectorSpec& spec, float* out, std::vector<uint8_t>* bytes) {
  bytes->resize(spec.extent.bytes);
  Status status = c_.files[spec.extent.file]->ReadExact(spec.extent.offset, *bytes);
  if (!status.ok())
    return Status(status.code(), status.what(), spec.name + ", " + status.where(), status.hint());
  DecodeRow(spec.type, bytes->data(), out, spec.n);
  Transform(spec.transform, out, spec.n);
  return {};
}

Status WeightStream::LoadVectors() {
  const ModelMap& map = *c_.map;
  std::vector<uint8_t> bytes;
  float* derived = reinterpret_cast<float*>(derived_.data());
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    for (size_t r = 0; r < map.layers[i].vector.size(); ++r) {
      const std::optional<VectorSpec>& spec = map.layers[i].vector[r];
      if (!spec) continue;
      float* out = vectors_.TakeArray<float>(spec->n);
      if (out == nullptr) return Status(Code::kFailed, "vectors do not fit their plan", spec->name);
      SLUICE_TRY(LoadVector(*spec, out, &bytes));
      layers_[i].vector[r] = out;
    }
    if (NeedsDerivedKv(map.layers[i])) SLUICE_TRY(LoadDerived(i, &derived));
  }
  float* norm = vectors_.TakeArray<float>(map.output_norm.n);
  SLUICE_TRY(LoadVector(map.output_norm, norm, &bytes));
  output_norm_ = norm;
  if (map.rope_factors) {
    rope_factors_.resize(map.rope_factors->n);
    SLUICE_TRY(LoadVector(*map.rope_factors, rope_factors_.data(), &bytes));
  }
  return {};
}

// attn_kv_b [H][nope + v][rank] -> key half transposed to [H][rank][nope], value half [H][v][rank],
// both f32.
Status WeightStream::LoadDerived(uint32_t layer, float** at) {
  const MatrixSpec& spec = *c_.map->layers[layer].Get(MatrixRole::kMlaKvB);
  const MlaConfig& m = c_.map->config.mla;
  const uint32_t heads = c_.map->config.heads[layer], per_head = m.nope_dim + m.value_dim,
                 rank = m.kv_rank;
  float* k = *at;
  float* v = k + uint64_t{heads} * rank * m.nope_dim;
  *at = v + uint64_t{heads} * m.value_dim * rank;
  std::vector<uint8_t> bytes(spec.row_bytes);
  std::vector<float> row(rank);
  for (uint32_t r = 0; r < spec.rows; ++r) {
    SLUICE_TRY(
        c_.files[spec.extent.file]->ReadExact(spec.extent.offset + r * spec.row_bytes, bytes));
    DecodeRow(spec.type, bytes.data(), row.data(), rank);
    const uint32_t head = r / per_head, j = r % per_head;
    if (j < m.nope_dim) {
      for (uint32_t i = 0; i < rank; ++i) k[(uint64_t{head} * rank + i) * m.nope_dim + j] = row[i];
    } else {
      std::copy(row.begin(), row.end(), v + (uint64_t{head} * m.value_dim + j - m.nope_dim) * rank);
    }
  }
  layers_[layer].matrix[static_cast<size_t>(MatrixRole::kMlaKB)] = {
      reinterpret_cast<const uint8_t*>(k), WeightType::kF32, heads * rank, m.nope_dim,
      uint64_t{m.nope_dim} * 4};
  layers_[layer].matrix[static_cast<size_t>(MatrixRole::kMlaVB)] = {
      reinterpret_cast<const uint8_t*>(v), WeightType::kF32, heads * m.value_dim, rank,
      uint64_t{rank} * 4};
  return {};
}

void WeightStream::PlacePinned() {
  const MemoryPlan& plan = *c_.plan;
  const auto head = static_cast<uint32_t>(layers_.size());
  uint8_t* at = pinned_.data();
  const auto place = [&](uint32_t id, const UnitLayout& unit) {
    uint8_t* data = at;
    at += unit.bytes;
    pinned_units_.Add(id, unit, data);
    return data;
  };
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    if (plan.layer_pinned[i]) Point(i, place(i, plan.layer_units[i]));
  }
  if (plan.head_pinned) {
    const uint8_t* data = place(head, plan.head_unit);
    heads_[0] = ViewOf(c_.map->head, data + plan.head_unit.matrix_offset[0]);
    const Extent &h = c_.map->head.extent, &e = c_.map->embedding.extent;
    if (h.file == e.file && h.offset == e.offset) embedding_ = heads_[0].data;
    embedding_unit_ = head;
  }
  if (plan.embedding_pinned) {
    embedding_unit_ = head + 1;
    embedding_ = place(embedding_unit_, plan.embedding_unit) + plan.embedding_unit.matrix_offset[0];
  }
}

Status WeightStream::AwaitPinned(uint32_t unit) {
  if (pinned_units_.Waited(unit)) return {};
  const uint64_t start = NowNanos();
  const Status status = pinned_units_.Wait(unit);
  stall_ns_ += NowNanos() - start;
  if (c_.timeline != nullptr) Show(unit, pinned_units_.reads(unit), start);
  return status.ok() ? status : Failed(unit, status);
}

Status WeightStream::Failed(uint32_t unit, const Status& status) const {
  const std::string what = unit < layers_.size() ? fmt::format("layer {}", unit)
                           : unit == embedding_unit_ && unit > layers_.size() ? "embedding"
                                                                              : "output head";
  return Status(status.code(), status.what(), what + ", " + status.where(), status.hint());
}

bool WeightStream::Streams(uint32_t unit) const {
  return unit < layers_.size() ? !c_.plan->layer_pinned[unit] : !c_.plan->head_pinned;
}

const UnitLayout& WeightStream::UnitOf(uint32_t unit) const {
  return unit < layers_.size() ? c_.plan->layer_units[unit]
                               : c_.plan->slab_units[unit - layers_.size()];
}

// The streamed unit that is needed after `unit`; there is one, or this is not called.
uint32_t WeightStream::NextStreamed(uint32_t unit) const {
  const auto layers = static_cast<uint32_t>(layers_.size());
  const uint32_t units =
      layers + (with_head_ ? static_cast<uint32_t>(c_.plan->slab_units.size()) : 0);
  uint32_t next = unit;
  for (uint32_t tries = 0; tries <= units; ++tries) {
    next = next + 1 >= units ? 0 : next + 1;
    if (Streams(next)) return next;
  }
  return layers;  // only the head streams and this pass does without it: its first slab is next
}

void WeightStream::Point(uint32_t unit, const uint8_t* data) {
  const UnitLayout& layout = UnitOf(unit);
  if (unit >= layers_.size()) {
    const size_t slab = unit - layers_.size();
    heads_[slab] = ViewOf(c_.plan->head_slabs[slab], data + layout.matrix_offset[0]);
    head_rows_[slab] = static_cast<uint32_t>(
        (c_.plan->head_slabs[slab].extent.offset - c_.map->head.extent.offset) /
        c_.map->head.row_bytes);
    return;
  }
  for (size_t i = 0; i < matrices_[unit].size(); ++i) {
    layers_[unit].matrix[roles_[unit][i]] =
        ViewOf(*matrices_[unit][i], data + layout.matrix_offset[i]);
  }
}

void WeightStream::Issue(Slot* slot, uint32_t unit) {
  const UnitLayout& layout = UnitOf(unit);
  slot->unit = unit;
  slot->held = false;
  slot->requests = static_cast<uint32_t>(layout.reads.size());
  for (uint32_t i = 0; i < slot->requests; ++i) {
    slot->reads[i] = MakeRequest(layout.reads[i], slot->data, ReadPriority::kAhead);
    queue_->Submit(&slot->reads[i]);
  }
  last_issued_ = unit;
}

void WeightStream::ReadAhead() {
  for (Slot& slot : slots_) {
    if (slot.unit >= 0) continue;
    const uint32_t next = NextStreamed(last_issued_);
    if (Find(next) != nullptr) return;  // fewer streamed units than slots
    Issue(&slot, next);
  }
}

MutableByteSpan WeightStream::BorrowRing() {
  if (queue_ != nullptr) Drain();
  return ring_.span();
}

WeightStream::Slot* WeightStream::Find(uint32_t unit) {
  for (Slot& slot : slots_) {
    if (slot.unit == unit) return &slot;
  }
  return nullptr;
}

void WeightStream::Drain() {
  for (Slot& slot : slots_) {
    if (slot.unit < 0 || slot.held) continue;
    for (uint32_t i = 0; i < slot.requests; ++i) {
      if (slot.reads[i].done || queue_->Cancel(&slot.reads[i])) continue;
      (void)queue_->Wait(&slot.reads[i]);  // its unit is not wanted, so neither is its error
    }
    slot.unit = -1;
  }
}

Status WeightStream::Acquire(uint32_t unit) {
  if (!Streams(unit)) return AwaitPinned(unit);
  Slot* slot = Find(unit);
  if (slot != nullptr && !pinned_units_.complete()) Urge(slot);
  if (slot == nullptr) {
    Drain();
    slot = Find(-1);
    for (Slot& s : slots_) {
      if (s.unit < 0) slot = &s;
    }
    if (slot == nullptr) return Status(Code::kFailed, "all ring slots are held");
    Issue(slot, unit);
    ReadAhead();
  }
  const uint64_t start = NowNanos();
  Status error;
  for (uint32_t i = 0; i < slot->requests; ++i) {
    const Status status = queue_->Wait(&slot->reads[i]);
    if (!status.ok() && error.ok()) error = status;
  }
  stall_ns_ += NowNanos() - start;
  if (c_.timeline != nullptr) Show(unit, {slot->reads.data(), slot->requests}, start);
  if (!error.ok()) {
    slot->unit = -1;
    return Failed(unit, error);
  }
  slot->held = true;
  Point(unit, slot->data);
  return {};
}

// While pinned units are still being read, a pass does not wait for those behind it.
void WeightStream::Urge(Slot* slot) {
  for (uint32_t i = 0; i < slot->requests; ++i) {
    ReadRequest& read = slot->reads[i];
    if (read.done || !queue_->Cancel(&read)) continue;
    read.priority = ReadPriority::kDemand;
    queue_->Submit(&read);
  }
}

void WeightStream::Show(uint32_t unit, std::span<const ReadRequest> reads,
                        uint64_t wait_begin_ns) const {
  const int layer = unit < layers_.size() ? static_cast<int>(unit) : -1;
  c_.timeline->Add(Timeline::Track::kStall, layer, -1, wait_begin_ns, NowNanos());
  for (const ReadRequest& read : reads)
    c_.timeline->Add(Timeline::Track::kAheadRead, layer, -1, read.submit_ns, read.done_ns);
}

void WeightStream::Release(uint32_t unit) {
  if (!Streams(unit)) return;
  Slot* slot = Find(unit);
  if (slot == nullptr) return;
  slot->unit = -1;
  slot->held = false;
  ReadAhead();
}

}  // namespace sluice
