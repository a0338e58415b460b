// EngineCore: a model loaded by its plan, and the one step loop over it.
//
// Contract: Open plans, refuses or loads, then freezes the ledger. Calls to Step are serialised by
// a mutex; every other method is safe from any thread. Members are declared in the order in which
// they depend on each other.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "io/read_queue.h"
#include "memory/arena.h"
#include "memory/background_prefault.h"
#include "runtime/device_probe.h"
#include "runtime/expert_store.h"
#include "runtime/lookahead_trial.h"
#include "runtime/memory_plan.h"
#include "runtime/model_digest.h"
#include "runtime/model_source.h"
#include "runtime/sequence.h"
#include "runtime/shared_probe.h"
#include "runtime/step_loop.h"
#include "runtime/weight_stream.h"
#include "sluice/engine.h"

namespace sluice {

// What the run has done so far, summed; the public Stats are derived from it.
struct StepCounters {
  double load_s = 0, align_s = 0, ttft_s = 0, prefill_s = 0, decode_s = 0;
  uint64_t prompt_tokens = 0, decode_tokens = 0, reused_tokens = 0, recomputed_tokens = 0;
  uint64_t prefill_bytes = 0, decode_bytes = 0, decode_stall_ns = 0;
  uint64_t decode_spill_bytes = 0;
  uint64_t spill_read_before = 0, spill_written_before = 0;  // at the last reset
};

struct CoreInput {
  ModelSource source;
  EngineOptions options;
  uint64_t tokenizer_bytes = 0;
  double opened_s = 0;             // when opening began, for load and first-token times
  uint64_t peak_before_bytes = 0;  // VmHWM then: an earlier engine's peak is not this one's
  // Tests: a queue of their own, usually around the real one. Empty: MakeReadQueue.
  std::function<Result<std::unique_ptr<ReadQueue>>(const std::vector<const File*>&,
                                                   const ReadQueueOptions&)>
      make_queue;
};

class EngineCore {
 public:
  static Result<std::unique_ptr<EngineCore>> Open(CoreInput input);
  // The table only.
  static Result<Plan> PlanOnly(CoreInput input);
  ~EngineCore();

  Status Step(const StepLoop::Request& request);
  std::unique_ptr<Sequence> NewSequence();
  void Return(std::unique_ptr<Sequence> sequence);
  // Sequence's own, between the steps of others.
  uint32_t Align(Sequence* sequence, std::span<const TokenId> ids);
  void Cut(Sequence* sequence, uint32_t n);
  // Writes what is new to the prefix store; with_state: also the recurrent state as it stands.
  void Keep(Sequence* sequence, bool with_state);

  const Plan& plan() const { return plan_.table; }
  std::vector<Ledger::Line> Held() const { return ledger_->Lines(); }
  const ModelConfig& config() const { return map_.config; }
  Stats stats() const;
  void ResetStats();
  // Disk and memory as they are now, for the bound in the stats; half a second. Forgets the cached
  // experts.
  void MeasureMachine();

 private:
  EngineCore() = default;
  static Status Prepare(CoreInput* input, EngineCore* core);  // map, budget, plan
  void KnowMachine(PlanInput* plan);
  void MeasureDisk(MutableByteSpan memory);
  void KeepMachine();
  MutableByteSpan BorrowMemory();
  Status Load(const CoreInput& input);
  Status ReserveOverhead();
  Status ReadPinned(const CoreInput& input);
  Status OpenFiles();
  Status MakePools();
  Status OpenStore();
  Status MakeExperts();
  void AddExpertStats(Stats* stats) const;
  void AddSpillStats(Stats* stats) const;
  void AddIoNotices(Stats* stats) const;
  // Once per process in the log, once per engine in its stats.
  void Note(LogLevel level, const std::string& key, std::string text);
  Status MakeSpill();
  void LockPinned();
  Status Run(const StepLoop::Request& request);
  uint64_t StallNs() const;

  mutable std::mutex mutex_;
  EngineOptions options_;
  ModelMap map_;
  MemoryPlan plan_;
  std::vector<std::unique_ptr<File>> files_;
  std::unique_ptr<Ledger> ledger_;
  Reservation process_, tokenizer_, page_tables_, kv_tables_;
  CpuRoles roles_;
  std::unique_ptr<ThreadPool> pool_;
  const Ops* ops_ = nullptr;
  std::unique_ptr<WeightStream> stream_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<RouteRecorder> trace_;
  std::unique_ptr<ExpertStore> experts_;
  std::unique_ptr<BackgroundPrefault> prefault_;  // of experts_, until the first step is done
  KvPagePool pages_;
  Arena state_arena_, page_arena_;
  std::unique_ptr<PrefixCache> prefixes_;
  std::unique_ptr<PrefixStore> store_;
  ModelDigest digest_;
  std::unique_ptr<KvSpill> spill_;
  SequencePool sequences_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<StepLoop> loop_;
  StepCounters counters_;
  const Sequence* aligned_ = nullptr;  // its next step ends a prompt; only compared
  LookaheadTrial lookahead_trial_;     // while nobody asked for a number of layers
  double opened_s_ = 0;
  DeviceProbe machine_;
  MachineRates rates_;                // of the last MeasureMachine
  std::optional<DeviceProbe> known_;  // from the state folder
  std::string device_key_;
  std::vector<std::string> notices_;
  std::set<std::string> noted_;  // keys of what Note has said
};

}  // namespace sluice
