// Which rows of a chunk each expert of a layer has to compute.
//
// Contract: plain arrays placed once; Group is a counting sort, so experts come out in ascending id
// and rows in order. The packed index of (row, j) says where that row's output for its j-th expert
// lies.
#pragma once

#include <cstdint>
#include <vector>

#include "model/tile.h"

namespace sluice {

class ExpertRows {
 public:
  ExpertRows(uint32_t experts, uint32_t used, uint32_t chunk);

  void Group(uint32_t rows, const MoeRows& moe);

  struct Need {
    uint32_t expert = 0;
    uint32_t first = 0, n = 0;  // packed range
  };
  const std::vector<Need>& needs() const { return needs_; }
  const uint32_t* rows_of(const Need& need) const { return row_.data() + need.first; }
  const float* weights_of(const Need& need) const { return weight_.data() + need.first; }
  uint32_t packed(uint32_t row, uint32_t j) const { return packed_[row * used_ + j]; }

 private:
  uint32_t used_;
  std::vector<uint32_t> count_;   // [experts]
  std::vector<uint32_t> row_;     // [chunk * used] chunk row of each packed entry
  std::vector<float> weight_;     // [chunk * used]
  std::vector<uint32_t> packed_;  // [chunk * used]
  std::vector<Need> needs_;
};

}  // namespace sluice
