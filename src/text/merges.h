// The merge list as a flat table: (left id, right id) -> (rank, merged id).
//
// Contract: Add in rank order, Finish once, then immutable and safe to share. Of two equal pairs
// the first one counts. 12 bytes per merge plus 4 bytes per index cell (load <= 0.7).
#pragma once

#include <cstdint>
#include <vector>

#include "sluice/types.h"

namespace sluice::text {

class MergeTable {
 public:
  void Reserve(size_t merges) { merges_.reserve(merges); }
  void Add(TokenId left, TokenId right, TokenId merged) {
    merges_.push_back({left, right, merged});
  }
  void Finish();

  size_t size() const { return merges_.size(); }
  TokenId merged(size_t rank) const { return merges_[rank].merged; }
  // Replaces the list by what `keep(merged id)` accepts; before Finish.
  template <typename Keep>
  void Filter(Keep keep) {
    std::erase_if(merges_, [&](const Merge& m) { return !keep(m.merged); });
  }

  // The rank, or UINT32_MAX.
  uint32_t Find(TokenId left, TokenId right) const {
    if (index_.empty()) return UINT32_MAX;
    const size_t mask = index_.size() - 1;
    for (size_t at = Hash(left, right) & mask;; at = (at + 1) & mask) {
      const uint32_t rank = index_[at];
      if (rank == UINT32_MAX) return rank;
      if (merges_[rank].left == left && merges_[rank].right == right) return rank;
    }
  }
  uint64_t memory_bytes() const {
    return merges_.capacity() * sizeof(Merge) + index_.capacity() * sizeof(uint32_t);
  }

 private:
  struct Merge {
    TokenId left, right, merged;
  };
  static size_t Hash(TokenId left, TokenId right) {
    uint64_t h =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    h *= 0x9E3779B97F4A7C15ull;
    return h ^ h >> 32;
  }
  std::vector<Merge> merges_;
  std::vector<uint32_t> index_;
};

}  // namespace sluice::text
