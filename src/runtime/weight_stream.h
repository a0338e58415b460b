// WeightStream: pinned weights, and a ring through which the other blocks of a dense model flow.
//
// Contract: owner-thread only. BeginPinned reads all vectors and starts reading the pinned units
// (large sequential reads, in pass order) while the owner goes on; the first Acquire of a pinned
// unit waits for it. Layers and head slabs are acquired in pass order; a streamed unit's matrices
// are valid until Release, which starts the next read (read-ahead is ring slots - 1, cyclic over
// passes, so the next token's first block is already under way). Acquire of an out-of-turn unit
// drains the ring and starts over: always right, only slower. A read that fails ends the pass with
// the unit's name, file and offset; the next pass asks again. No allocation after Start.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/read_queue.h"
#include "memory/arena.h"
#include "memory/ledger.h"
#include "model/weights.h"
#include "runtime/memory_plan.h"
#include "runtime/pinned_units.h"
#include "runtime/timeline.h"
#include "sluice/types.h"

namespace sluice {

class WeightStream {
 public:
  struct Context {
    const ModelMap* map = nullptr;
    const MemoryPlan* plan = nullptr;
    Ledger* ledger = nullptr;
    std::vector<const File*> files;
    ProgressFn progress;
    Timeline* timeline = nullptr;
  };
  // Maps the arenas; nothing is read yet.
  static Result<std::unique_ptr<WeightStream>> Make(Context context);
  // Everything that stays: the vectors now, the matrices in the background.
  Status BeginPinned(ReadQueue* queue);
  // Waits for them.
  Status FinishPinned();
  // Bytes of pinned units that have arrived.
  uint64_t pinned_bytes_read() const { return pinned_units_.bytes_done(); }
  // From here on units stream through `queue`; begins to read ahead.
  void Start(ReadQueue* queue);
  std::vector<MutableByteSpan> PinnedMemory() const;
  // The ring's memory, for use until the next Acquire: what was read ahead is dropped. Between
  // steps.
  MutableByteSpan BorrowRing();

  // Units: 0 .. layers-1 are layers, layers + s is head slab s.
  Status Acquire(uint32_t unit);
  void Release(uint32_t unit);
  // What follows the last layer in this pass: the head's slabs, or the first layer of the next
  // chunk.
  void BeginPass(bool with_head) { with_head_ = with_head; }

  const LayerWeights& layer(uint32_t i) const { return layers_[i]; }
  // Pinned head, or the slab held; rows [first_row, first_row + rows).
  uint32_t head_parts() const { return head_parts_; }
  const Matrix& head_part(uint32_t i) const { return heads_[i]; }
  uint32_t head_part_row(uint32_t i) const { return head_rows_[i]; }
  const float* output_norm() const { return output_norm_; }
  const std::vector<float>& rope_factors() const { return rope_factors_; }
  // Null unless the whole embedding is in memory (pinned, or tied to a pinned head) by now.
  const uint8_t* embedding() const {
    return embedding_ != nullptr && Ready(embedding_unit_) ? embedding_ : nullptr;
  }
  // Whether the matrices of a pinned unit are there by now.
  bool Ready(uint32_t unit) const { return pinned_units_.complete() || pinned_units_.Ready(unit); }

  uint64_t stall_ns() const { return stall_ns_; }

 private:
  struct Slot {
    int64_t unit = -1;
    bool held = false;
    uint32_t requests = 0;
    uint8_t* data = nullptr;
    std::vector<ReadRequest> reads;
  };

  explicit WeightStream(Context context) : c_(std::move(context)) {}
  Status LoadVectors();
  Status LoadVector(const VectorSpec& spec, float* out, std::vector<uint8_t>* bytes);
  Status LoadDerived(uint32_t layer, float** at);
  void PlacePinned();
  Status AwaitPinned(uint32_t unit);
  bool Streams(uint32_t unit) const;
  const UnitLayout& UnitOf(uint32_t unit) const;
  uint32_t NextStreamed(uint32_t unit) const;
  void Point(uint32_t unit, const uint8_t* data);
  void Issue(Slot* slot, uint32_t unit);
  void ReadAhead();
  Slot* Find(uint32_t unit);
  void Drain();
  void Urge(Slot* slot);
  Status Failed(uint32_t unit, const Status& status) const;
  void Show(uint32_t unit, std::span<const ReadRequest> reads, uint64_t wait_begin_ns) const;

  Context c_;
  ReadQueue* queue_ = nullptr;
  Arena pinned_, vectors_, derived_, ring_;
  std::vector<LayerWeights> layers_;
  std::vector<std::vector<const MatrixSpec*>> matrices_;
  std::vector<std::vector<size_t>> roles_;  // per layer, the role of each of matrices_
  std::vector<Matrix> heads_;
  std::vector<uint32_t> head_rows_;
  uint32_t head_parts_ = 0;
  const float* output_norm_ = nullptr;
  std::vector<float> rope_factors_;
  const uint8_t* embedding_ = nullptr;
  uint32_t embedding_unit_ = 0;
  PinnedUnits pinned_units_;
  std::vector<Slot> slots_;
  uint32_t last_issued_ = 0;
  bool anything_streams_ = false, with_head_ = true;
  uint64_t stall_ns_ = 0;
};

}  // namespace sluice
