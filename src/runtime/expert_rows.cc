#include "runtime/expert_rows.h"

#include <algorithm>

namespace sluice {

ExpertRows::ExpertRows(uint32_t experts, uint32_t used, uint32_t chunk)
    : used_(used),
      count_(experts),
      row_(uint64_t{chunk} * used),
      weight_(uint64_t{chunk} * used),
      packed_(uint64_t{chunk} * used) {
  needs_.reserve(experts);
}

void ExpertRows::Group(uint32_t rows, const MoeRows& moe) {
  std::fill(count_.begin(), count_.end(), 0u);
  const uint32_t entries = rows * used_;
  for (uint32_t i = 0; i < entries; ++i) ++count_[moe.expert[i]];
  needs_.clear();
  uint32_t first = 0;
  for (uint32_t e = 0; e < count_.size(); ++e) {
    if (count_[e] == 0) continue;
    needs_.push_back({e, first, count_[e]});
    const uint32_t next = first + count_[e];
    count_[e] = first;  // from here on: where the next row of e goes
    first = next;
  }
  for (uint32_t i = 0; i < entries; ++i) {
    const uint32_t at = count_[moe.expert[i]]++;
    row_[at] = i / used_;
    weight_[at] = moe.weight[i];
    packed_[i] = at;
  }
}

}  // namespace sluice
