#include "runtime/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/limits.h"
#include "memory/cache_policy.h"
#include "model/bind_common.h"
#include "model/experts.h"
#include "runtime/int8_work.h"
#include "runtime/kv_spill.h"
#include "runtime/prefix_cache.h"
#include "runtime/router_guess.h"

namespace sluice {
namespace {

// What the process still grows by after the plan is made: stacks, I/O rings, output buffers, code
// pages touched for the first time, allocator slack. Measured at 3 to 5 MiB (docs/memory.md); part
// of the promise, so rounded up.
constexpr uint64_t kProcessGrowthBytes = 6 * kMiB;
// A cgroup also counts the kernel's page tables: 8 bytes for each 4 KiB page of the budget.
constexpr uint64_t kPageTableShare = 512;
constexpr uint64_t kThreadBytes = 208 * kKiB;  // stack pages a compute or I/O thread touches

constexpr uint32_t kTileMax = 128;  // tokens computed at once: activations stay near the L2 cache
constexpr uint32_t kChunkMin = 8;
constexpr uint32_t kChunkMaxDense = 512, kChunkMaxMoe = 2048;
// A larger chunk saves sweeps of the file; it may cost this share of the budget.
constexpr uint64_t kChunkShare = 12;
constexpr uint32_t kKeepRowsMax =
    16;  // chunks up to this size keep expert outputs and sum at the end
constexpr uint32_t kScratchRowsMax = 256;
constexpr uint32_t kExpertRingMax =
    8;  // transient slots: enough reads in flight for a sweep at disk speed
// Look-ahead has an int8 copy of the routers where that costs at most this share of the slots.
constexpr uint64_t kRouterCopyShare = 32;
constexpr uint64_t kTwoPlanesActiveMax = 512 * kMiB;  // weights a token passes through
// Left to itself, KV takes at most this share of the budget, but holds as many tokens.
constexpr uint64_t kKvShare = 3;
constexpr uint32_t kKvPagesMin = 512 / kKvPageTokens;
constexpr uint64_t kSecondWindowShare = 16;     // of the budget, for reading a layer ahead
constexpr uint64_t kSamplerBytesPerToken = 20;  // of the vocabulary: candidate list and penalties

struct Sizes {
  uint32_t chunk = 0, tile = 0, logits_rows = 1;
};

uint64_t VectorBytes(const ModelMap& map) {
  uint64_t floats = map.output_norm.n;
  for (const LayerMap& layer : map.layers) {
    for (const auto& v : layer.vector) floats += v ? AlignUp(v->n, 16) : 0;
    // Fused gate and up biases are split into two arrays beside the original.
    const auto& fused = layer.Get(VectorRole::kExpertGateUpBias);
    floats += fused ? AlignUp(fused->n, 16) : 0;
  }
  return floats * 4 + 64 * kKiB;
}

// K and V halves as f32: [H][rank][nope] and [H][v][rank].
uint64_t DerivedBytes(const ModelMap& map) {
  uint64_t bytes = 0;
  const MlaConfig& m = map.config.mla;
  for (uint32_t i = 0; i < map.layers.size(); ++i) {
    if (!NeedsDerivedKv(map.layers[i])) continue;
    bytes += uint64_t{map.config.heads[i]} * m.kv_rank * (m.nope_dim + m.value_dim) * 4 + 128;
  }
  return bytes;
}

uint64_t WithPageTables(uint64_t bytes) { return bytes + bytes / (kPageTableShare - 1) + 1; }

class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input), map_(*input.map), c_(map_.config) {
    Prepare();
  }
  Result<MemoryPlan> Run();

 private:
  void Prepare();
  void PrepareExperts();
  uint64_t SizedBytes(const Sizes& s) const;  // activations, chunk, logits
  uint64_t FixedBytes(const Sizes& s, const KvSplit& kv) const;
  uint64_t KvBytes(const KvSplit& kv) const;
  uint32_t SlidingFrames(uint32_t chunk, const KvSplit& kv) const;
  uint64_t SlidingBytes(uint32_t chunk, const KvSplit& kv) const;
  KvSplit Split(uint32_t context, uint32_t resident) const;
  KvSplit AskedSplit(uint32_t context) const;
  KvSplit LeastSplit(uint32_t context) const;
  KvSplit ChooseSplit() const;
  uint32_t ChunkMax(const KvSplit& kv) const;
  uint64_t SlabBytesMax() const;
  ExpertPlan ExpertSizes(const Sizes& s) const;
  uint64_t FloorBytes(const KvSplit& kv) const;
  uint64_t ResidentBytes() const;
  Sizes ChooseSizes() const;
  bool Fit(const Sizes& s, MemoryPlan* plan) const;
  bool PinAll(uint64_t free_bytes, MemoryPlan* plan) const;
  bool Stream(uint64_t free_bytes, MemoryPlan* plan) const;
  void CutHead(uint64_t slab_bytes, MemoryPlan* plan) const;
  void FitExperts(uint64_t free_bytes, MemoryPlan* plan) const;
  void Describe(MemoryPlan* plan) const;
  void DescribeKv(MemoryPlan* plan) const;
  std::vector<PlanLine> KvLines(const MemoryPlan& plan) const;
  void DescribeWork(Plan* table) const;
  void Predict(Plan* table) const;
  Status TooSmall() const;
  bool float_act() const { return in_.act == ActType::kF32; }

  const PlanInput& in_;
  const ModelMap& map_;
  const ModelConfig& c_;
  MemoryPlan base_;  // everything that does not depend on the budget
  uint64_t dense_bytes_ = 0, dense_unit_max_ = 0, active_bytes_ = 0, experts_total_ = 0,
           experts_per_token_ = 0;
  uint64_t part_max_ = 0, parts_sum_ = 0;  // a layer's part of a KV page, padded
  uint32_t parts_ = 0;
  bool tied_ = false;
};

void Planner::Prepare() {
  tied_ = map_.head.extent.offset == map_.embedding.extent.offset &&
          map_.head.extent.file == map_.embedding.extent.file;
  base_.kv = MakeKvLayout(c_, in_.kv);
  base_.state = MakeStateLayout(c_);
  for (uint32_t i = 0; i < c_.layers; ++i) {
    const uint64_t stride = KvSpill::Stride(base_.kv, i);
    part_max_ = std::max(part_max_, stride);
    parts_sum_ += stride;
    parts_ += stride > 0 ? 1 : 0;
  }
  base_.widths = WidthsOf(c_);
  base_.context = in_.context;
  base_.alignment = in_.alignment;
  const auto add_format = [&](WeightType type) {
    base_.act_formats |=
        1u << static_cast<uint32_t>(float_act() ? ActFormat::kF32 : ActFormatOf(type));
  };
  for (const LayerMap& layer : map_.layers) {
    const std::vector<const MatrixSpec*> matrices = LayerMatrices(layer);
    for (const MatrixSpec* m : matrices) add_format(m->type);
    base_.layer_units.push_back(LayOutUnit(matrices, in_.alignment));
    const UnitLayout& unit = base_.layer_units.back();
    dense_bytes_ += unit.bytes;
    dense_unit_max_ = std::max(dense_unit_max_, unit.bytes);
    active_bytes_ += unit.payload_bytes;
    if (layer.experts) {
      for (const ExpertPart& part : layer.experts->part) {
        if (part.first.extent.bytes > 0) add_format(part.first.type);
      }
    }
  }
  add_format(map_.head.type);
  const MatrixSpec *head = &map_.head, *embedding = &map_.embedding;
  base_.head_unit = LayOutUnit({&head, 1}, in_.alignment);
  base_.embedding_unit = LayOutUnit({&embedding, 1}, in_.alignment);
  active_bytes_ +=
      base_.head_unit.payload_bytes + map_.embedding.row_bytes + 2 * base_.state.floats * 4;
  base_.vector_bytes = VectorBytes(map_);
  base_.derived_bytes = DerivedBytes(map_);
  base_.embed_buffer_bytes = AlignUp(map_.embedding.row_bytes, in_.alignment) + in_.alignment;
  base_.embed_buffers = std::min<uint32_t>(64, in_.context);
  PrepareExperts();
  // Small models lose most by rounding and have the compute to spare (docs/decisions/0004).
  const bool two = in_.act == ActType::kQ16 ||
                   (in_.act == ActType::kAuto && active_bytes_ < kTwoPlanesActiveMax);
  if (two) base_.act_formats |= ActBuffer::kTwoPlanes;
}

void Planner::PrepareExperts() {
  ExpertPlan& e = base_.experts;
  for (const LayerMap& layer : map_.layers) {
    if (!layer.experts) continue;
    experts_total_ += c_.moe.experts;
    experts_per_token_ += c_.moe.used;
    uint64_t staging = 0;
    const bool staged = layer.experts->layout == ExpertLayout::kTransposed ||
                        layer.experts->layout == ExpertLayout::kHfMxfp4;
    for (size_t p = 0; p < 3; ++p) {
      const uint64_t bytes = layer.experts->part[p].first.extent.bytes;
      if (bytes == 0) continue;
      active_bytes_ += bytes * c_.moe.used;
      const uint64_t region = AlignUp(bytes, in_.alignment) + in_.alignment;
      // A converted expert grows by its scales, a sixteenth at most.
      const uint64_t kept = staged ? AlignUp(bytes + bytes / 8, in_.alignment) : region;
      e.part_bytes[p] = std::max(e.part_bytes[p], kept);
      const uint64_t scales = layer.experts->scales[p].first.extent.bytes;
      staging += staged ? region + AlignUp(scales, in_.alignment) + in_.alignment : 0;
    }
    e.staging_bytes = std::max(e.staging_bytes, staging);
  }
  for (uint64_t part : e.part_bytes) e.slot_bytes += part;
}

uint64_t Planner::KvBytes(const KvSplit& kv) const {
  return kv.frames * base_.kv.page_bytes + kv.window_bytes + kv.table_bytes;
}

// What a chunk and the window before its first row touch at most, and a copy of a shared page.
uint32_t Planner::SlidingFrames(uint32_t chunk, const KvSplit& kv) const {
  if (base_.kv.sliding_bytes == 0) return 0;
  const uint64_t tokens = uint64_t{c_.sliding_window} + chunk;
  return static_cast<uint32_t>(std::min<uint64_t>(kv.pages, tokens / kKvPageTokens + 3));
}

// Also room to put a page together in.
uint64_t Planner::SlidingBytes(uint32_t chunk, const KvSplit& kv) const {
  if (base_.kv.sliding_bytes == 0) return 0;
  return SlidingFrames(chunk, kv) * base_.kv.sliding_bytes + base_.kv.whole_page_bytes();
}

// One page more than the context: a page that others share is copied before it is written.
KvSplit Planner::Split(uint32_t context, uint32_t resident) const {
  KvSplit kv;
  if (base_.kv.page_bytes == 0) return kv;
  const uint32_t pages = (context + kKvPageTokens - 1) / kKvPageTokens;
  kv.pages = pages + 1;
  kv.frames = std::min(resident, pages) + 1;
  kv.table_bytes = uint64_t{kv.pages} * (PrefixCache::kEntryBytes + kKvPageTokens * 4 + 64 +
                                         (base_.kv.sliding_bytes > 0 ? 24 : 0));
  if (!kv.spills()) return kv;
  kv.window_pages = kv.pages - kv.frames;
  kv.windows = 2 * kv.window_pages * part_max_ <= in_.budget_bytes / kSecondWindowShare ? 2 : 1;
  // Between steps it also holds a page whose parts are padded.
  kv.window_bytes = std::max(kv.windows * kv.window_pages * part_max_, parts_sum_);
  kv.table_bytes += uint64_t{kv.pages} * (parts_ * 8ull + 16) + 64 * kKiB;
  return kv;
}

// Two pages at least: one for the chunk at hand.
KvSplit Planner::AskedSplit(uint32_t context) const {
  const uint64_t page = std::max<uint64_t>(base_.kv.page_bytes, 1);
  const uint64_t by_tokens = (in_.kv_memory_tokens + kKvPageTokens - 1) / kKvPageTokens;
  const uint64_t pages = std::max(by_tokens, in_.kv_memory_bytes / page);
  return Split(context, static_cast<uint32_t>(std::clamp<uint64_t>(pages, 2, UINT32_MAX / 2)));
}

KvSplit Planner::LeastSplit(uint32_t context) const {
  if (in_.kv_memory_tokens + in_.kv_memory_bytes > 0) return AskedSplit(context);
  const KvSplit all = Split(context, UINT32_MAX / 2), few = Split(context, kKvPagesMin);
  return KvBytes(few) < KvBytes(all) ? few : all;  // a window may be larger than what it saves
}

// All of the context, or as many pages as leave the weights their share and the budget its floor.
KvSplit Planner::ChooseSplit() const {
  if (in_.kv_memory_tokens + in_.kv_memory_bytes > 0) return AskedSplit(in_.context);
  const KvSplit all = Split(in_.context, UINT32_MAX / 2);
  const auto fits = [&](const KvSplit& kv, uint64_t share) {
    return KvBytes(kv) <= share && FloorBytes(kv) <= in_.budget_bytes;
  };
  if (fits(all, in_.budget_bytes / kKvShare)) return all;
  for (uint64_t share = in_.budget_bytes / kKvShare; share > 0; share /= 2) {
    const uint64_t page = base_.kv.page_bytes;
    const uint64_t none = KvBytes(Split(in_.context, 0));
    if (none >= share || page <= part_max_) break;
    const auto resident = static_cast<uint32_t>((share - none) / (page - part_max_ / 2));
    if (resident <= kKvPagesMin) break;
    for (uint32_t n = std::min(resident, all.pages - 1); n > kKvPagesMin; n -= (n + 15) / 16) {
      const KvSplit kv = Split(in_.context, n);
      if (fits(kv, share)) return kv;
    }
  }
  const KvSplit least = LeastSplit(in_.context);
  // Nothing fits the share: all of it, if that is possible at all, needs no disk.
  return FloorBytes(least) > in_.budget_bytes || KvBytes(least) >= KvBytes(all) ? all : least;
}

// The pages of a chunk have frames while they are written.
uint32_t Planner::ChunkMax(const KvSplit& kv) const {
  return kv.spills() ? (kv.frames - 2) * kKvPageTokens : UINT32_MAX;
}

ExpertPlan Planner::ExpertSizes(const Sizes& s) const {
  ExpertPlan e = base_.experts;
  if (experts_total_ == 0) return e;
  e.keep_rows = std::min(kKeepRowsMax, s.chunk);
  e.scratch_rows = std::max(e.keep_rows * c_.moe.used, std::min(kScratchRowsMax, s.chunk));
  e.scratch_bytes = ExpertScratch::Bytes(c_, e.scratch_rows, base_.act_formats, float_act());
  e.keep_bytes = uint64_t{e.scratch_rows} * c_.hidden * 4 + 64;
  return e;
}

uint64_t Planner::SizedBytes(const Sizes& s) const {
  const uint64_t rope_kinds = c_.rope_sliding.dims > 0 ? 2 : 1;
  const uint64_t half = std::max(c_.rope.dims, c_.rope_sliding.dims) / 2;
  uint64_t bytes = Activations::Bytes(base_.widths, s.tile, base_.act_formats);
  bytes += uint64_t{s.chunk} * (c_.hidden * 4 + rope_kinds * half * 8 + 16) + 4 * kKiB;
  bytes += uint64_t{c_.vocab} * (4 * s.logits_rows + kSamplerBytesPerToken) +
           uint64_t{s.logits_rows} * c_.hidden * 4;
  bytes += ActBuffer::Bytes(s.logits_rows, c_.hidden, base_.act_formats);
  if (experts_total_ > 0) {
    const ExpertPlan e = ExpertSizes(s);
    bytes += uint64_t{s.chunk} * (2 * c_.hidden * 4 + c_.moe.used * 6ull + 8) + 4 * kKiB;
    bytes +=
        ActBuffer::Bytes(s.chunk, c_.hidden, base_.act_formats) + e.scratch_bytes + e.keep_bytes;
    bytes += uint64_t{s.chunk} * c_.moe.used * 8 + c_.moe.experts * 64ull;
    const CacheShape shape{c_.layers, c_.moe.experts, static_cast<uint32_t>(experts_total_)};
    bytes += CacheBookkeepingBytes(shape) + 256 * kKiB;
  }
  return bytes;
}

uint64_t Planner::FixedBytes(const Sizes& s, const KvSplit& kv) const {
  return in_.process_bytes + kProcessGrowthBytes +
         kThreadBytes * static_cast<uint64_t>(in_.threads) + base_.vector_bytes +
         base_.derived_bytes + KvBytes(kv) + SlidingBytes(s.chunk, kv) + base_.state.floats * 4 +
         base_.embed_buffers * base_.embed_buffer_bytes + base_.experts.staging_bytes +
         SizedBytes(s);
}

// The largest slab a streamed head is cut into: no larger than a layer, never less than one row.
uint64_t Planner::SlabBytesMax() const {
  const uint64_t row = AlignUp(map_.head.row_bytes, in_.alignment) + in_.alignment;
  return std::max({dense_unit_max_, row, uint64_t{256} * kKiB});
}

uint64_t Planner::FloorBytes(const KvSplit& kv) const {
  const Sizes s{std::min(kChunkMin, in_.context), std::min(kChunkMin, in_.context), 1};
  const uint64_t expert = experts_total_ > 0 ? base_.experts.slot_bytes : 0;
  return WithPageTables(FixedBytes(s, kv) + SlabBytesMax() + expert);
}

uint64_t Planner::ResidentBytes() const {
  return WithPageTables(FixedBytes(ChooseSizes(), Split(in_.context, UINT32_MAX / 2)) +
                        dense_bytes_ + base_.head_unit.bytes +
                        (tied_ ? 0 : base_.embedding_unit.bytes) +
                        experts_total_ * base_.experts.slot_bytes);
}

Sizes Planner::ChooseSizes() const {
  const uint32_t most = std::min(in_.context, ChunkMax(base_.split));
  if (in_.chunk > 0) {
    const uint32_t chunk = std::min(in_.chunk, most);
    return {chunk, std::min(chunk, kTileMax), 1};
  }
  uint32_t chunk = std::min(experts_total_ > 0 ? kChunkMaxMoe : kChunkMaxDense, most);
  const auto bytes = [&](uint32_t n) {
    return SizedBytes({n, std::min(n, kTileMax), 1}) + SlidingBytes(n, base_.split);
  };
  for (; chunk > kChunkMin; chunk /= 2) {
    if (bytes(chunk) - bytes(kChunkMin) <= in_.budget_bytes / kChunkShare) break;
  }
  chunk = std::max(chunk, std::min(kChunkMin, in_.context));
  return {chunk, std::min(chunk, kTileMax), 1};
}

Result<MemoryPlan> Planner::Run() {
  base_.split = ChooseSplit();
  Sizes sizes = ChooseSizes();
  MemoryPlan plan;
  bool fits = Fit(sizes, &plan);
  while (!fits && sizes.chunk > kChunkMin && in_.chunk == 0) {
    sizes.chunk = std::max(kChunkMin, sizes.chunk / 2);
    sizes.tile = std::min(sizes.chunk, kTileMax);
    fits = Fit(sizes, &plan);
  }
  if (!fits) return TooSmall();
  Describe(&plan);
  return plan;
}

bool Planner::Fit(const Sizes& s, MemoryPlan* plan) const {
  *plan = base_;
  plan->chunk = s.chunk;
  plan->tile = s.tile;
  plan->logits_rows = s.logits_rows;
  plan->activation_bytes = SizedBytes(s);
  plan->experts = ExpertSizes(s);
  plan->sliding_frames = SlidingFrames(s.chunk, base_.split);
  plan->layer_pinned.assign(map_.layers.size(), 0);
  const uint64_t fixed = FixedBytes(s, base_.split);
  const uint64_t usable = in_.budget_bytes - in_.budget_bytes / kPageTableShare;
  if (fixed > usable) return false;
  const uint64_t free_bytes = usable - fixed;
  return PinAll(free_bytes, plan) || Stream(free_bytes, plan);
}

bool Planner::PinAll(uint64_t free_bytes, MemoryPlan* plan) const {
  const uint64_t dense = dense_bytes_ + base_.head_unit.bytes;
  // A mixture needs one transient slot at least; fewer than one token's experts are better served
  // by streaming nothing else.
  const uint64_t least = experts_total_ > 0 ? base_.experts.slot_bytes : 0;
  if (dense + least > free_bytes) return false;
  plan->layer_pinned.assign(map_.layers.size(), 1);
  plan->head_pinned = true;
  plan->pinned_bytes = dense;
  uint64_t left = free_bytes - dense;
  const uint64_t all_experts = experts_total_ * base_.experts.slot_bytes;
  if (!tied_ && base_.embedding_unit.bytes + all_experts <= left) {
    plan->embedding_pinned = true;
    plan->pinned_bytes += base_.embedding_unit.bytes;
    left -= base_.embedding_unit.bytes;
  }
  FitExperts(left, plan);
  return true;
}

void Planner::FitExperts(uint64_t free_bytes, MemoryPlan* plan) const {
  if (experts_total_ == 0) return;
  ExpertPlan& e = plan->experts;
  const uint64_t cap =
      in_.expert_slots_max < 0 ? experts_total_ : static_cast<uint64_t>(in_.expert_slots_max);
  if (free_bytes / e.slot_bytes >= experts_total_ && cap >= experts_total_) {
    e.slots = static_cast<uint32_t>(experts_total_);
    return;
  }
  if (in_.lookahead && cap > 0) {
    const uint64_t copy = RouterGuess::CopyBytes(map_, base_.act_formats);
    if (copy <= free_bytes / kRouterCopyShare && free_bytes - copy >= 2 * e.slot_bytes)
      e.router_copy_bytes = copy;
  }
  const uint64_t room = (free_bytes - e.router_copy_bytes) / e.slot_bytes;
  e.ring = static_cast<uint32_t>(std::clamp<uint64_t>(room / 8, 1, kExpertRingMax));
  e.slots = static_cast<uint32_t>(std::min({room - e.ring, experts_total_, cap}));
}

bool Planner::Stream(uint64_t free_bytes, MemoryPlan* plan) const {
  const uint64_t expert = experts_total_ > 0 ? base_.experts.slot_bytes : 0;
  const uint64_t slot = SlabBytesMax();
  if (slot + expert > free_bytes) return false;
  free_bytes -= expert;
  // Read-ahead of two where it costs little of what could be pinned, of one where that fits at all.
  uint32_t slots = 1;
  if (free_bytes >= 8 * slot) {
    slots = 3;
  } else if (free_bytes >= 2 * slot) {
    slots = 2;
  }
  plan->ring_slots = slots;
  plan->ring_slot_bytes = slot;
  uint64_t left = free_bytes - slots * slot;
  const auto pin = [&](uint64_t bytes) {
    if (bytes > left) return false;
    left -= bytes;
    plan->pinned_bytes += bytes;
    return true;
  };
  plan->head_pinned = pin(base_.head_unit.bytes);
  const size_t n = map_.layers.size();
  for (size_t i = 0; i < n; ++i) {
    // First, last, second, last but one, ...: the ends of a pass are where nothing can be read
    // ahead yet.
    const size_t layer = i % 2 == 0 ? i / 2 : n - 1 - i / 2;
    plan->layer_pinned[layer] = pin(base_.layer_units[layer].bytes) ? 1 : 0;
  }
  if (!plan->head_pinned) CutHead(slot, plan);
  if (experts_total_ > 0) plan->experts.ring = 1;
  return true;
}

void Planner::CutHead(uint64_t slab_bytes, MemoryPlan* plan) const {
  const MatrixSpec& head = map_.head;
  const uint64_t room = slab_bytes - std::min(slab_bytes, 2 * in_.alignment);
  const uint32_t rows = static_cast<uint32_t>(std::max<uint64_t>(1, room / head.row_bytes));
  for (uint32_t begin = 0; begin < head.rows; begin += std::min(rows, head.rows - begin)) {
    plan->head_slabs.push_back(SliceRows(head, begin, std::min(rows, head.rows - begin)));
  }
  for (const MatrixSpec& slab : plan->head_slabs) {
    const MatrixSpec* p = &slab;
    plan->slab_units.push_back(LayOutUnit({&p, 1}, in_.alignment));
  }
}

void Planner::Describe(MemoryPlan* plan) const {
  Plan& t = plan->table;
  t.model = c_.name;
  t.arch = c_.arch_name;
  t.budget_bytes = in_.budget_bytes;
  t.budget_auto = in_.budget_auto;
  t.budget_reason = in_.budget_reason;
  t.resident_bytes = ResidentBytes();
  t.floor_bytes = std::min(FloorBytes(LeastSplit(in_.context)), t.resident_bytes);
  t.context = in_.context;
  t.chunk = plan->chunk;
  t.layers = c_.layers;
  t.layers_pinned =
      static_cast<uint32_t>(std::count(plan->layer_pinned.begin(), plan->layer_pinned.end(), 1));
  t.layers_streamed = t.layers - t.layers_pinned;
  t.head_pinned = plan->head_pinned;
  t.read_ahead = plan->ring_slots > 0 ? plan->ring_slots - 1 : 0;
  DescribeKv(plan);
  t.pinned_bytes = plan->pinned_bytes;
  t.active_bytes_per_token = active_bytes_;
  DescribeWork(&t);
  t.experts_total = static_cast<uint32_t>(experts_total_);
  t.expert_slots = plan->experts.slots;
  t.experts_per_token = static_cast<uint32_t>(experts_per_token_);
  t.expert_bytes = plan->experts.slot_bytes;
  const auto line = [&](const char* tag, uint64_t bytes, std::string detail) {
    if (bytes > 0) t.lines.push_back({tag, bytes, std::move(detail)});
    t.total_bytes += bytes;
  };
  const uint64_t tokenizer = std::min(in_.tokenizer_bytes, in_.process_bytes);
  line("process",
       in_.process_bytes - tokenizer + kProcessGrowthBytes +
           kThreadBytes * static_cast<uint64_t>(in_.threads),
       "code, libraries, stacks");
  line("tokenizer", tokenizer, fmt::format("{} entries", c_.vocab));
  line("pinned weights", plan->pinned_bytes,
       fmt::format("{} of {} layers{}{}", t.layers_pinned, t.layers,
                   plan->head_pinned ? ", head" : "", plan->embedding_pinned ? ", embedding" : ""));
  line("norms and biases", plan->vector_bytes + plan->derived_bytes, "as f32");
  line("ring", plan->ring_slots * plan->ring_slot_bytes,
       fmt::format("{} streamed layers, read-ahead {}", t.layers_streamed, t.read_ahead));
  line("expert slots", plan->experts.slots * plan->experts.slot_bytes,
       fmt::format("{} of {}", plan->experts.slots, experts_total_));
  line("expert ring", plan->experts.ring * plan->experts.slot_bytes + plan->experts.staging_bytes,
       fmt::format("{} transient", plan->experts.ring));
  line("router copy", plan->experts.router_copy_bytes, "int8, for look-ahead");
  for (PlanLine& kv : KvLines(*plan)) line(kv.tag.c_str(), kv.bytes, std::move(kv.detail));
  line("state", t.state_bytes, "recurrent layers");
  line("activations", plan->activation_bytes + plan->embed_buffers * plan->embed_buffer_bytes,
       fmt::format("prefill chunk {}, tile {}, logits", plan->chunk, plan->tile));
  line("page tables", t.total_bytes / (kPageTableShare - 1), "the kernel's, counted by a cgroup");
  t.streamed_bytes_per_token = 0;
  for (size_t i = 0; i < plan->layer_units.size(); ++i) {
    if (!plan->layer_pinned[i]) t.streamed_bytes_per_token += plan->layer_units[i].bytes;
  }
  for (const UnitLayout& slab : plan->slab_units) t.streamed_bytes_per_token += slab.bytes;
  Predict(&t);
}

void Planner::DescribeWork(Plan* t) const {
  t->act_planes = float_act() ? 0 : (base_.act_formats & ActBuffer::kTwoPlanes) != 0 ? 2 : 1;
  const Int8Work work = Int8WorkOf(map_, t->act_planes);
  t->int8_ops_per_token = work.per_token;
  t->int8_ops_per_logits = work.per_logits;
}

// Those of no bytes are left out by the caller.
std::vector<PlanLine> Planner::KvLines(const MemoryPlan& plan) const {
  const Plan& t = plan.table;
  const KvSplit& kv = plan.split;
  const bool assembles = plan.kv.sliding_bytes > 0;
  const std::string spill =
      kv.spills() ? fmt::format("; {} of {} spill to {}", FormatBytes(t.kv_spill_bytes),
                                FormatBytes(t.kv_spill_bytes + t.kv_bytes), t.spill_dir)
                  : "";
  return {
      {"kv", t.kv_bytes - t.kv_sliding_bytes,
       fmt::format("{} tokens, {}, {} B each{}", t.kv_resident_tokens, t.kv_format,
                   t.kv_bytes_per_token, spill)},
      {"kv sliding", t.kv_sliding_bytes,
       fmt::format("the last {} tokens, {} B each", t.kv_sliding_tokens,
                   plan.kv.sliding_bytes_per_token())},
      {"kv spare",
       kv.frames > 0 ? plan.kv.page_bytes + (assembles ? plan.kv.whole_page_bytes() : 0) : 0,
       assembles ? "two pages, for copies of shared ones and to put one together"
                 : "one page, for copies of shared ones"},
      {"kv window", kv.window_bytes,
       fmt::format("spilled pages of {} layer{} at a time", kv.windows, kv.windows > 1 ? "s" : "")},
      {"kv tables", kv.table_bytes, fmt::format("{} pages", kv.pages)},
  };
}

void Planner::DescribeKv(MemoryPlan* plan) const {
  Plan& t = plan->table;
  const KvSplit& kv = plan->split;
  static constexpr std::array<const char*, 4> kFormatNames = {"f32", "f16", "q8", "k8v4"};
  t.kv_format = kFormatNames[static_cast<size_t>(in_.kv)];
  t.kv_bytes_per_token = plan->kv.bytes_per_token();
  const uint64_t pages = (uint64_t{in_.context} + kKvPageTokens - 1) / kKvPageTokens;
  t.kv_formats.clear();
  for (size_t i = 0; i < kFormatNames.size(); ++i) {
    const KvLayout layout = MakeKvLayout(c_, static_cast<KvFormat>(i));
    t.kv_formats.push_back(
        {kFormatNames[i], layout.bytes_per_token(), layout.sliding_bytes_per_token(),
         pages * layout.page_bytes + plan->sliding_frames * layout.sliding_bytes});
  }
  t.state_bytes = plan->state.floats * 4;
  const uint32_t frames = kv.frames > 0 ? kv.frames - 1 : 0;
  t.kv_sliding_bytes = plan->sliding_frames * plan->kv.sliding_bytes;
  t.kv_sliding_tokens = plan->sliding_frames * kKvPageTokens;
  t.kv_bytes = frames * plan->kv.page_bytes + t.kv_sliding_bytes;
  t.kv_resident_tokens = frames * kKvPageTokens;
  if (!kv.spills()) return;
  t.kv_spill_bytes = uint64_t{kv.window_pages} * plan->kv.page_bytes;
  t.kv_window_bytes = kv.window_bytes;
  t.spill_dir = in_.spill_dir;
}

// Hit rate of decayed frequency by the share of all experts that is cached: recorded Qwen3-30B-A3B
// routing, 128 tokens from cold (docs/expert-cache.md). Between the points it is linear.
double ExpectedHitRate(double share) {
  static constexpr std::array<std::pair<double, double>, 7> kCurve = {{{0, 0},
                                                                       {0.049, 0.34},
                                                                       {0.098, 0.515},
                                                                       {0.146, 0.636},
                                                                       {0.195, 0.729},
                                                                       {0.244, 0.788},
                                                                       {1, 1}}};
  for (size_t i = 1; i < kCurve.size(); ++i) {
    if (share > kCurve[i].first) continue;
    const auto [x0, y0] = kCurve[i - 1];
    const auto [x1, y1] = kCurve[i];
    return y0 + (y1 - y0) * (share - x0) / (x1 - x0);
  }
  return 1;
}

void Planner::Predict(Plan* t) const {
  t->disk_bytes_per_s = in_.disk_bytes_per_s;
  t->memory_bytes_per_s = in_.memory_bytes_per_s;
  t->hit_rate = 1;
  if (experts_total_ > 0) {
    t->hit_rate =
        ExpectedHitRate(static_cast<double>(t->expert_slots) / static_cast<double>(experts_total_));
    t->streamed_bytes_per_token +=
        static_cast<uint64_t>((1 - t->hit_rate) * static_cast<double>(experts_per_token_) *
                              static_cast<double>(t->expert_bytes));
  }
  if (in_.memory_bytes_per_s <= 0) return;
  const double memory_s = static_cast<double>(active_bytes_) / in_.memory_bytes_per_s;
  const double disk_s =
      in_.disk_bytes_per_s > 0
          ? static_cast<double>(t->streamed_bytes_per_token) / in_.disk_bytes_per_s
          : 0;
  t->bound_tok_s = 1 / std::max(memory_s, disk_s);
}

Status Planner::TooSmall() const {
  const KvSplit least = LeastSplit(in_.context);
  const uint64_t floor = FloorBytes(least);
  if (floor <=
      in_.budget_bytes) {  // the floor is that of the smallest chunk; a larger one was asked for
    return Status(Code::kBudget,
                  fmt::format("a prefill chunk of {} tokens does not fit the budget {}", in_.chunk,
                              FormatBytes(in_.budget_bytes)),
                  "--chunk", "use a smaller --chunk, or leave it out");
  }
  std::string hint = fmt::format("use --budget {}M", (floor + kMiB - 1) / kMiB);
  uint32_t fits = 0, too_many = in_.context / kKvPageTokens + 1;  // pages
  while (too_many - fits > 1) {
    const uint32_t pages = fits + (too_many - fits) / 2;
    (FloorBytes(LeastSplit(pages * kKvPageTokens)) <= in_.budget_bytes ? fits : too_many) = pages;
  }
  if (fits > 0 && fits * kKvPageTokens < in_.context)
    hint += fmt::format(" or --ctx {}, the largest context that fits", fits * kKvPageTokens);
  const uint64_t missing = floor - in_.budget_bytes;
  return Status(
      Code::kBudget,
      fmt::format("budget {} is below the floor of {}: {} short", FormatBytes(in_.budget_bytes),
                  FormatBytes(floor), FormatBytes(missing)),
      fmt::format("context {} tokens, KV {}{}", in_.context,
                  FormatBytes(Split(in_.context, UINT32_MAX / 2).pages * base_.kv.page_bytes),
                  least.spills() ? fmt::format(" ({} in memory with most of it on the disk)",
                                               FormatBytes(KvBytes(least)))
                                 : ""),
      hint);
}

}  // namespace

std::vector<const MatrixSpec*> LayerMatrices(const LayerMap& layer) {
  std::vector<const MatrixSpec*> list;
  for (size_t r = 0; r < layer.matrix.size(); ++r) {
    if (!layer.matrix[r]) continue;
    if (static_cast<MatrixRole>(r) == MatrixRole::kMlaKvB && NeedsDerivedKv(layer)) continue;
    list.push_back(&*layer.matrix[r]);
  }
  return list;
}

bool NeedsDerivedKv(const LayerMap& layer) {
  return layer.Get(MatrixRole::kMlaKvB).has_value() && !layer.Get(MatrixRole::kMlaKB).has_value();
}

Result<MemoryPlan> MakeMemoryPlan(const PlanInput& input) { return Planner(input).Run(); }

}  // namespace sluice
