// Engine: a loaded model inside a budget.
//
// Contract: Open plans, refuses or loads; after it the memory ledger is frozen. One engine may
// serve many sessions, one step at a time (calls are serialised inside). Thread-safe. Destroy
// sessions first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/plan.h"
#include "sluice/stats.h"
#include "sluice/status.h"
#include "sluice/tokenizer.h"
#include "sluice/types.h"

namespace sluice {

// In the place of what the model file says of rotary positions; 0 leaves the file's word. scale is
// how many times the context grows, freq_base the base of the frequencies, yarn_orig_ctx the
// context the model was trained with.
struct RopeOptions {
  RopeMode mode = RopeMode::kModel;
  double scale = 0, freq_base = 0;
  uint32_t yarn_orig_ctx = 0;
};

struct EngineOptions {
  uint64_t budget_bytes =
      0;                 // whole process; 0: what the machine or cgroup concedes, minus a margin
  uint32_t context = 0;  // tokens; 0: min(model's, 4096)
  uint32_t chunk = 0;    // prefill chunk in tokens; 0: as large as the budget allows
  // KV that stays in memory, the larger of both; the rest of the context goes to a file without a
  // name in scratch_dir. 0 and 0: all of it, unless that would take more than a third of the
  // budget.
  uint64_t kv_memory_tokens = 0, kv_memory_bytes = 0;
  int threads = 0;        // 0: performance cores
  std::vector<int> cpus;  // pin threads to these
  KvType kv = KvType::kAuto;
  ActType act = ActType::kAuto;
  IoMode io = IoMode::kAuto;
  int lookahead = -1;  // layers, 0..2; -1: none or one, whichever is faster in repeated trials
  bool mlock = false;
  bool need_text = true;      // load tokenizer and template (false for ids in, ids out)
  std::string isa;            // force a lower instruction set
  std::string policy;         // expert cache policy; empty: the default
  int64_t expert_slots = -1;  // tests: cap the number of slots
  int io_depth = 0;           // reads in flight; 0: what the device probe found best
  std::string state_dir;      // what is remembered between runs; empty: nothing
  bool probe = false;         // measure disk and memory for the plan's prediction
  std::string route_trace_path, timeline_path;
  RopeOptions rope;
  // What was computed for the beginning of a text is kept in state_dir/prefix and found again. With
  // no_prefix_store only snapshots of hybrid models are made, in a nameless file of scratch_dir;
  // with prefix_store_bytes 0 not even those.
  bool no_prefix_store = false;
  uint64_t prefix_store_bytes = uint64_t{4} << 30;
  // A prompt on its way is kept this often, so that one that is cancelled or killed goes on from
  // there; 0: after each chunk.
  double keep_every_s = 5;
  std::string scratch_dir = "/var/tmp";  // of files without a name, on a disk
  bool private_session = false;          // nothing of this run's texts or states is stored
  double lookahead_noise = 0;  // tests: share of look-ahead guesses replaced by random ones
  ProgressFn progress;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Open(const std::string& model_path,
                                              const EngineOptions& options);
  // The plan only: reads headers, loads nothing.
  static Result<Plan> PlanFor(const std::string& model_path, const EngineOptions& options);
  ~Engine();

  const Plan& plan() const;
  const TextModel* text() const;  // null when opened without
  uint32_t vocab_size() const;
  uint32_t context() const;
  // Defaults from generation_config / metadata as JSON ({} when the model has none).
  const std::string& generation_defaults_json() const;
  Stats stats() const;  // since open
  void ResetStats();
  // Measures disk and memory as they are now (half a second): the bound in the stats. Between
  // steps.
  void MeasureMachine();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a model file holds, as text or JSON for `sluice inspect`.
Result<std::string> InspectModel(const std::string& model_path, bool tensors, bool json);

}  // namespace sluice
