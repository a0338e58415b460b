// The planner: which byte goes where, before anything is loaded.
//
// Contract: MakeMemoryPlan is a pure function of its input. The engine allocates exactly the lines
// of the plan. Given the budget it chooses, in this order: the prefill chunk, what is pinned (every
// pinned byte of a cyclic stream saves the same reads, so whole units are pinned while they fit:
// head, first and last layers, the rest), the ring and its read-ahead, and the expert slots. Below
// the floor it is kBudget with the shortfall and the nearest setting that works.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/kv_layout.h"
#include "model/model_map.h"
#include "model/tile.h"
#include "runtime/unit_layout.h"
#include "sluice/plan.h"

namespace sluice {

struct PlanInput {
  const ModelMap* map = nullptr;
  KvFormat kv = KvFormat::kF16;
  ActType act = ActType::kAuto;
  uint32_t context = 0;  // tokens, > 0
  uint32_t chunk = 0;    // 0: chosen
  // KV that stays in memory, the larger of both; 0 and 0: chosen. The rest goes to a file in
  // spill_dir.
  uint64_t kv_memory_tokens = 0, kv_memory_bytes = 0;
  std::string spill_dir;
  uint64_t budget_bytes = 0;
  bool budget_auto = false;
  std::string budget_reason;
  uint64_t process_bytes = 0;  // resident now: code, libraries, tokenizer, headers
  uint64_t tokenizer_bytes =
      0;                      // the part of process_bytes that the tokenizer holds, for the table
  uint64_t alignment = 4096;  // of reads
  int threads = 1;
  int64_t expert_slots_max = -1;                        // -1: as many as fit
  bool lookahead = true;                                // may be on at some time
  double disk_bytes_per_s = 0, memory_bytes_per_s = 0;  // 0: not measured
};

// The sizes of the expert store's memory.
struct ExpertPlan {
  uint64_t part_bytes[3] = {0, 0, 0};  // region of gate, up, down in a slot, aligned
  uint64_t slot_bytes = 0;
  uint64_t staging_bytes = 0;  // for layouts that are converted on arrival
  uint32_t slots = 0;
  uint32_t ring = 0;          // transient slots behind the cached ones
  uint32_t scratch_rows = 0;  // packed rows of one wave
  uint64_t scratch_bytes = 0, keep_bytes = 0;
  uint64_t router_copy_bytes = 0;  // int8, for look-ahead; 0: it uses the routers themselves
  uint32_t keep_rows = 0;          // chunk rows whose expert outputs are kept and summed at the end
};

// KV pages of the context and the frames (memory) for them; where there are fewer frames, the
// window through which attention sees the others. One page and one frame are spare.
struct KvSplit {
  uint32_t pages = 0, frames = 0;
  uint32_t window_pages = 0, windows = 0;
  uint64_t window_bytes = 0;
  uint64_t table_bytes = 0;  // page tables, keys, checksums
  bool spills() const { return frames < pages; }
};

struct MemoryPlan {
  Plan table;
  KvSplit split;
  uint64_t alignment = 4096;  // of reads
  KvLayout kv;
  uint32_t sliding_frames = 0;  // for sliding parts of KV pages: a window and a chunk
  StateLayout state;
  Widths widths;
  uint32_t act_formats = 0;  // bit per ActFormat that the weights ask for
  uint32_t context = 0, chunk = 0, tile = 0, logits_rows = 0;
  std::vector<uint8_t> layer_pinned;
  bool head_pinned = false, embedding_pinned = false;
  std::vector<UnitLayout> layer_units;
  UnitLayout head_unit, embedding_unit;
  std::vector<MatrixSpec> head_slabs;  // when the head streams
  std::vector<UnitLayout> slab_units;
  uint32_t ring_slots = 0;
  uint64_t ring_slot_bytes = 0;
  uint64_t pinned_bytes = 0, vector_bytes = 0, derived_bytes = 0, activation_bytes = 0,
           logits_bytes = 0;
  uint64_t embed_buffer_bytes = 0;  // one row's aligned read
  uint32_t embed_buffers = 0;
  ExpertPlan experts;
};

// The matrices of a layer that lie in memory as they are in the file, in role order.
std::vector<const MatrixSpec*> LayerMatrices(const LayerMap& layer);
// Matrices computed at load (an attn_kv_b split into its key and value halves), as f32.
bool NeedsDerivedKv(const LayerMap& layer);

Result<MemoryPlan> MakeMemoryPlan(const PlanInput& input);

}  // namespace sluice
