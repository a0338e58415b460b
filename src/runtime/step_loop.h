// StepLoop: runs tokens through the model, layer by layer, chunk by chunk.
//
// Contract: owner-thread only; the caller serialises. No heap allocation inside Run, but for what
// of a prompt is kept on flash. A chunk of
// tokens passes a layer before the next layer starts, so each streamed byte is read once per chunk;
// inside a layer it is computed tile by tile. Logits rows have the same bits whatever chunk, tile,
// thread count or budget (promise 2). Values that are not finite end the step with an error naming
// the layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "io/read_queue.h"
#include "memory/arena.h"
#include "model/arch/arch.h"
#include "model/rope.h"
#include "runtime/memory_plan.h"
#include "runtime/sequence.h"
#include "runtime/snapshots.h"
#include "runtime/timeline.h"
#include "runtime/weight_stream.h"
#include "sluice/types.h"

namespace sluice {

// The routed experts of a layer over a chunk: implemented by the expert store.
class ExpertRunner {
 public:
  virtual ~ExpertRunner() = default;
  // A step of `rows` tokens begins (for decayed frequencies).
  virtual void BeginStep(uint32_t rows) = 0;
  // Adds the routed experts of `layer` to moe.out for chunk rows [0, rows). x [rows][hidden] is the
  // residual stream as it stands before them: what look-ahead routes on.
  virtual Status Run(uint32_t layer, uint32_t rows, const float* x, const MoeRows& moe) = 0;
  virtual void EndStep() = 0;
  virtual uint64_t stall_ns() const = 0;
};

class StepLoop {
 public:
  struct Context {
    const ModelMap* map = nullptr;
    const MemoryPlan* plan = nullptr;
    Ledger* ledger = nullptr;
    const Ops* ops = nullptr;
    ThreadPool* pool = nullptr;
    ReadQueue* queue = nullptr;
    WeightStream* stream = nullptr;
    ExpertRunner* experts = nullptr;  // null for dense models
    bool float_act = false;
    KvSpill* spill = nullptr;  // null: every KV page has a frame
    Timeline* timeline = nullptr;
    double keep_every_s = 5;  // see EngineOptions
  };
  static Result<std::unique_ptr<StepLoop>> Make(Context context);
  ~StepLoop();
  void SetExperts(ExpertRunner* experts) { c_.experts = experts; }

  using RowFn = std::function<void(uint32_t index, std::span<const float> logits)>;
  struct Request {
    Sequence* sequence = nullptr;
    std::span<const TokenId> ids;
    const RowFn* every_row = nullptr;
    const std::atomic<bool>* cancel = nullptr;
    const ProgressFn* progress = nullptr;
    std::span<float> logits;  // [vocab], receives the last row
  };
  // Appends request.ids to the sequence. On error the sequence is as before; full pages of the
  // chunks that passed are known to the prefix cache, and of a prompt that is long or was cancelled
  // to the store.
  Status Run(const Request& request);
  // Tokens of the last Run that the timeline held, but whose recurrent state was lost by a cut.
  uint32_t recomputed() const { return recomputed_; }

  Exec& exec() { return exec_; }
  MoeRows& moe() { return moe_; }
  // A running hash over every logits row computed, and the time spent waiting for weights.
  uint64_t logits_hash() const;
  void ResetHash();
  uint64_t embed_stall_ns() const { return embed_stall_ns_; }

 private:
  struct Hash;
  explicit StepLoop(const Context& context);
  Status Place();
  Status RunChunk(const Request& request, std::span<const TokenId> ids, uint32_t first_row,
                  bool last);
  Status Layers(uint32_t first_pos, uint32_t rows, const std::atomic<bool>* cancel);
  Status Mix(uint32_t layer, uint32_t rows);
  void KeepSoFar(Sequence* s, uint32_t done, double every_s);
  void Show(uint32_t first_pos, uint32_t rows, uint32_t layer) const;
  Status Embed(std::span<const TokenId> ids);
  Status EmbedFromFile(std::span<const TokenId> ids);
  void PrepareRows(Sequence* sequence, uint32_t first_pos, uint32_t rows);
  Tile TileAt(uint32_t first_row, uint32_t rows) const;
  Status Logits(const Request& request, uint32_t rows, uint32_t first_row, bool last);
  Status HeadRows(uint32_t first, uint32_t n);
  Status CheckFinite(uint32_t rows, uint32_t layer);

  Context c_;
  Exec exec_;
  Activations buffers_;
  MoeRows moe_;
  Forward forward_;
  const ArchPage* page_ = nullptr;
  RopeTable rope_, rope_sliding_;
  bool two_ropes_ = false;
  Arena arena_, embed_arena_;
  float* x_ = nullptr;  // [C][hidden]
  float *cos_ = nullptr, *sin_ = nullptr, *cos_sliding_ = nullptr,
        *sin_sliding_ = nullptr;  // [C][dims/2]
  uint32_t* pos_ = nullptr;
  const SequenceView** seq_ = nullptr;
  float* final_ = nullptr;   // [logits_rows][hidden]
  float* logits_ = nullptr;  // [logits_rows][vocab]
  ActBuffer final_act_;
  std::vector<ReadRequest> embed_reads_;
  struct Shown {  // the progress of the call at hand
    const ProgressFn* progress = nullptr;
    uint32_t first = 0, total = 0;
    double start_s = 0;
  } shown_;
  double kept_s_ = 0;  // when pages were last written amid the step
  uint64_t embed_stall_ns_ = 0;
  uint32_t recomputed_ = 0;
  Snapshots snapshots_;
  std::unique_ptr<Hash> hash_;
};

}  // namespace sluice
