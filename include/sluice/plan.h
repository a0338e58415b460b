// The plan: every byte the engine will hold, computed before anything is loaded.
//
// Contract: MakePlan is pure given the shape, the options and the machine; the engine allocates
// what the plan says and nothing else (the printed table is the table the engine uses). A budget
// below the floor is kBudget, with the shortfall and the nearest workable setting in the hint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/status.h"
#include "sluice/types.h"

namespace sluice {

struct PlanLine {
  std::string tag;  // "pinned weights", "ring", "expert slots", "kv", "state", "prefill",
                    // "tokenizer", "process"
  uint64_t bytes = 0;
  std::string detail;  // one short phrase
};

// What the whole context would take in one KV format, wherever it lies.
struct PlanKvFormat {
  std::string name;  // as --kv takes it
  uint64_t bytes_per_token = 0, sliding_bytes_per_token = 0, bytes = 0;
};

struct Plan {
  std::string model, arch;
  uint64_t budget_bytes = 0;
  bool budget_auto = false;
  std::string budget_reason;    // how auto came to its number
  uint64_t floor_bytes = 0;     // smallest budget that works with these options
  uint64_t resident_bytes = 0;  // budget at which everything is resident
  uint64_t total_bytes = 0;     // sum of the lines, <= budget_bytes
  std::vector<PlanLine> lines;

  uint32_t context = 0, chunk = 0;
  uint64_t kv_bytes_per_token = 0, kv_bytes = 0, state_bytes = 0;
  // kv_bytes is memory, for this many tokens; the rest of the context spills to a file.
  uint64_t kv_resident_tokens = 0, kv_spill_bytes = 0, kv_window_bytes = 0;
  // The part of kv_bytes that belongs to layers with a sliding window, which keep the last tokens
  // only; kv_bytes_per_token is without them.
  uint64_t kv_sliding_bytes = 0, kv_sliding_tokens = 0;
  std::string spill_dir;
  std::string kv_format;
  std::vector<PlanKvFormat> kv_formats;  // all of them, the chosen one too
  uint32_t layers = 0, layers_pinned = 0, layers_streamed = 0;
  bool head_pinned = true;
  uint32_t read_ahead = 0;  // streamed blocks beyond the one computed
  uint32_t experts_total = 0, expert_slots = 0, experts_per_token = 0;
  uint64_t expert_bytes = 0;  // one expert
  uint64_t pinned_bytes = 0, streamed_bytes_per_token = 0, active_bytes_per_token = 0;
  uint32_t act_planes = 0;  // int8 rows that a row of activations is split into; 0: floats
  // Two per quantised weight that a token passes through and plane: in the layers, in the head.
  uint64_t int8_ops_per_token = 0, int8_ops_per_logits = 0;

  // The prediction: t_flash = streamed bytes / disk, t_mem = active bytes / memory; 1 / max of
  // both.
  double disk_bytes_per_s = 0, memory_bytes_per_s = 0;  // measured by the probe; 0: not probed
  double hit_rate = 0;                                  // assumed for experts
  double bound_tok_s = 0;
};

}  // namespace sluice
