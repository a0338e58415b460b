// ExpertStore: the routed experts of a model bigger than memory: slots, misses, waves, look-ahead.
//
// Contract: owner-thread only, no allocation after Attach. Run adds every chosen expert of a layer
// to the output or fails naming layer, expert, file and offset; an expert is never skipped. All
// misses of a layer that have room are issued together; resident experts are computed first, then
// each as it arrives. Outputs are added in ascending expert id whatever the order of arrival
// (promise 2). A slot that is in flight or in use is never evicted. Long chunks stream through
// transient slots in file order and admit only each layer's share of the most recently used
// experts, so that a prefill leaves a balanced cache behind. Policies: docs/expert-cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/expert_cache.h"
#include "runtime/expert_reader.h"
#include "runtime/expert_rows.h"
#include "runtime/route_trace.h"
#include "runtime/router_guess.h"
#include "runtime/step_loop.h"
#include "runtime/timeline.h"

namespace sluice {

struct ExpertCounters {
  uint64_t lookups = 0, hits = 0;  // decode steps only
  uint64_t stall_ns = 0;
  uint64_t guesses = 0,
           guessed_right = 0;  // look-ahead: experts named, and of those asked for next
  uint64_t ahead_useful_bytes = 0, ahead_wasted_bytes = 0;
};

class ExpertStore final : public ExpertRunner {
 public:
  struct Context {
    const ModelMap* map = nullptr;
    const MemoryPlan* plan = nullptr;
    Ledger* ledger = nullptr;
    const WeightStream* stream = nullptr;
    std::string policy;          // empty: the default
    int lookahead = 0;           // layers ahead, 0..2
    double lookahead_noise = 0;  // tests: share of guesses replaced by random ones
    uint64_t alignment = 4096;
    RouteRecorder* trace = nullptr;
    Timeline* timeline = nullptr;
  };
  static Result<std::unique_ptr<ExpertStore>> Make(Context context);
  // The slots' memory, or without slots the ring's, for use until the next step: every cached
  // expert is forgotten. Empty when all experts are resident for good. Between steps.
  MutableByteSpan BorrowMemory();
  // The slots' memory, which the caller prefaults.
  Arena* slots_arena() { return &slots_; }
  Status Attach(ReadQueue* queue, Exec* exec);

  void BeginStep(uint32_t rows) override;
  Status Run(uint32_t layer, uint32_t rows, const float* x, const MoeRows& moe) override;
  void EndStep() override;
  uint64_t stall_ns() const override { return counters_.stall_ns; }

  const ExpertCounters& counters() const { return counters_; }
  void ResetCounters() { counters_ = {}; }
  void SetLookahead(int layers) { c_.lookahead = layers; }
  const char* policy_name() const { return cache_->policy().name(); }

 private:
  using Flight = ExpertReader::Flight;
  enum class Stage : uint8_t { kDeferred, kReading, kReady, kComputed };
  struct Pending {  // one needed expert of the layer at hand
    Stage stage = Stage::kDeferred;
    int slot = -1, ring = -1;
    bool admit = false;
    Flight* flight = nullptr;
  };

  explicit ExpertStore(Context context) : c_(std::move(context)) {}
  void SplitBiases();
  uint8_t* SlotData(int slot) const {
    return slots_.data() + static_cast<uint64_t>(slot) * slot_bytes_;
  }
  uint8_t* RingData(int ring) const {
    return ring_.data() + static_cast<uint64_t>(ring) * slot_bytes_;
  }
  const uint8_t* DataOf(const Pending& p) const {
    return p.slot >= 0 ? SlotData(p.slot) : RingData(p.ring);
  }

  void Resolve(uint32_t layer, uint32_t rows);
  void ChooseAdmitted(uint32_t rows);
  void IssueMisses(uint32_t layer);
  bool IssueOne(uint32_t layer, size_t need);
  Status Settle(size_t need);
  Status Collect();
  Status WaitForOne();
  void Release(size_t need);
  Status Compute(uint32_t layer, uint32_t rows, const MoeRows& moe);
  Status ComputeAsArriving(uint32_t layer, uint32_t rows, const MoeRows& moe);
  Status ComputeInOrder(uint32_t layer, const MoeRows& moe);
  Status WaveInOrder(uint32_t layer, size_t* next, const MoeRows& moe);
  void ComputeLarge(uint32_t layer, size_t need, const MoeRows& moe);
  void AddRows(const ExpertRows::Need& need, uint32_t skip, uint32_t n, const float* out,
               const MoeRows& moe);
  void SumKept(uint32_t rows, const MoeRows& moe);
  void Abort();
  void WaitFor(Flight* flight);
  void Show(const Flight& flight) const;
  ExpertTask Task(uint32_t layer, size_t need, uint32_t skip, uint32_t n, float* out) const;
  ExpertWeights WeightsOf(uint32_t layer, size_t need) const;

  // Look-ahead (expert_lookahead.cc).
  void LookAhead(uint32_t layer, const float* x);
  void AddNoise(std::vector<uint32_t>* guess);
  void IssueAhead(uint32_t layer);
  void ScoreGuess(uint32_t layer);
  void DropStaleFlights(uint32_t layer);
  void SettleAhead();

  void Remember(uint32_t layer, uint32_t rows, const MoeRows& moe);

  Context c_;
  const ModelConfig* config_ = nullptr;
  uint64_t slot_bytes_ = 0;
  Arena slots_, ring_, staging_, scratch_arena_, keep_arena_;
  ExpertScratch scratch_;
  float* keep_ = nullptr;
  std::unique_ptr<ExpertCache> cache_;
  std::unique_ptr<ExpertReader> reader_;
  std::unique_ptr<ExpertRows> rows_;
  ReadQueue* queue_ = nullptr;
  Exec* exec_ = nullptr;
  std::vector<Pending> pending_;
  std::vector<int> free_ring_;
  std::vector<Flight*> flight_of_slot_;
  std::vector<float> recency_;  // [experts] scratch of ChooseAdmitted
  std::vector<uint32_t> order_;
  size_t next_to_issue_ = 0;
  bool decode_ = false;
  std::vector<std::vector<float>> split_gate_, split_up_;  // fused biases per layer, de-interleaved
  std::vector<uint32_t> moe_layers_;
  std::vector<std::vector<uint32_t>> guess_;   // by layer, best first
  std::vector<std::vector<uint32_t>> issued_;  // by layer: what look-ahead began to read
  std::vector<int> ahead_slots_;  // slots with a look-ahead flight that nobody waits for
  std::unique_ptr<RouterGuess> router_;
  std::vector<uint32_t> protect_;
  uint64_t noise_state_ = 0x9E3779B97F4A7C15ull;
  // The routes of the last tokens of a chunk, replayed into the policy when the chunk is done.
  static constexpr uint32_t kReplayTokens = 32;
  std::vector<uint16_t> replay_;  // [layers][kReplayTokens][used]
  uint32_t replay_rows_ = 0;
  ExpertCounters counters_;
};

}  // namespace sluice
