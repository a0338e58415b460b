#include "text/merges.h"

namespace sluice::text {

void MergeTable::Finish() {
  merges_.shrink_to_fit();
  size_t capacity = 16;
  while (capacity * 7 < merges_.size() * 10) capacity *= 2;
  index_.assign(capacity, UINT32_MAX);
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& m = merges_[rank];
    size_t at = Hash(m.left, m.right) & (capacity - 1);
    bool known = false;
    while (index_[at] != UINT32_MAX && !known) {
      const Merge& other = merges_[index_[at]];
      known = other.left == m.left && other.right == m.right;
      if (!known) at = (at + 1) & (capacity - 1);
    }
    if (!known) index_[at] = rank;
  }
}

}  // namespace sluice::text
