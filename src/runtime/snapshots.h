// Snapshots: checkpoints of the recurrent state taken while a prompt passes through the layers.
//
// Contract: the step thread only. A snapshot lies at a row of the chunk: every layer's tiles end
// there, and as soon as a layer has passed it the layer's part of the state goes to the store, so
// that no chunk is cut (with experts on flash each chunk is a sweep of the file). What cannot be
// written is dropped with one notice: a snapshot saves time, it is never needed.
#pragma once

#include <memory>
#include <vector>

#include "model/kv_layout.h"
#include "runtime/sequence.h"

namespace sluice {

class Snapshots {
 public:
  explicit Snapshots(const StateLayout* layout) : layout_(layout) {}

  // Rows [first, first + rows) of `sequence` are about to run. All of a prompt but its last token,
  // its marks and every kEveryTokens become snapshots. prompt_end: its length; 0 while decoding.
  static constexpr uint32_t kEveryTokens = 1024;
  void Begin(Sequence* sequence, uint32_t first, uint32_t rows, uint32_t prompt_end);
  // How many rows from chunk row `row` on may be computed as one tile of at most `most`.
  uint32_t TileRows(uint32_t row, uint32_t most) const;
  // `layer` has passed chunk rows [0, row).
  void Passed(uint32_t layer, uint32_t row);
  // All layers have: the snapshots are complete.
  void Commit();
  void Abort() { points_.clear(); }

 private:
  struct Point {
    uint32_t length = 0;  // tokens of the prefix
    std::unique_ptr<CheckpointWriter> writer;
  };
  void Drop(Point* point, const Status& why);

  const StateLayout* layout_;
  Sequence* sequence_ = nullptr;
  uint32_t first_ = 0;
  std::vector<Point> points_;  // ascending
};

}  // namespace sluice
