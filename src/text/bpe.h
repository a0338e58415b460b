// Byte-pair merging of one piece: again and again the best adjacent pair, the leftmost of equals.
//
// Contract: O(n log n) in the piece's symbols, no recursion; scratch is owned by the caller and
// reused, so the tables can be shared between threads. The pair rule is a parameter: by merge rank
// (BPE) or by the score of the joined text (SentencePiece).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sluice/types.h"

namespace sluice::text {

struct BpeSymbol {
  uint32_t begin = 0, size = 0;  // bytes of the piece; size 0: merged away
  TokenId id = -1;
  int32_t prev = -1, next = -1;
};

struct BpePair {
  uint32_t key = UINT32_MAX;  // smaller is better; UINT32_MAX: no merge
  TokenId merged = -1;
};

class BpeScratch {
 public:
  std::vector<BpeSymbol> symbols;  // in: the start; out: the result, dead ones have size 0

  // pair(left, right) -> BpePair.
  template <typename PairFn>
  void Merge(PairFn pair) {
    if (symbols.size() <= kSmall) {
      MergeSmall(pair);
    } else {
      MergeLarge(pair);
    }
  }
  void Add(uint32_t begin, uint32_t size, TokenId id) {
    symbols.push_back({begin, size, id, -1, -1});
  }
  void Clear(size_t expected) {
    if (symbols.capacity() > 65536 && expected < 65536) symbols = {};
    symbols.clear();
    symbols.reserve(expected);
  }

 private:
  static constexpr size_t kSmall = 40;  // below, a linear search for the best pair beats a heap

  // size: bytes of the left symbol and its right neighbour when pushed. Symbols only grow, so an
  // entry is stale exactly when the left one is gone or the two together have another size now.
  struct Entry {
    uint32_t key;
    int32_t left;
    uint32_t size;
    bool operator<(const Entry& o) const { return key != o.key ? key > o.key : left > o.left; }
  };

  template <typename PairFn>
  void MergeSmall(PairFn pair) {
    BpePair pairs[kSmall];
    size_t n = symbols.size();
    for (size_t i = 0; i + 1 < n; ++i) pairs[i] = pair(symbols[i], symbols[i + 1]);
    while (n > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < n; ++i) {
        if (pairs[i].key < pairs[best].key) best = i;
      }
      if (pairs[best].key == UINT32_MAX) break;
      symbols[best].size += symbols[best + 1].size;
      symbols[best].id = pairs[best].merged;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      std::move(pairs + best + 1, pairs + n - 1, pairs + best);
      --n;
      if (best > 0) pairs[best - 1] = pair(symbols[best - 1], symbols[best]);
      if (best + 1 < n) pairs[best] = pair(symbols[best], symbols[best + 1]);
    }
  }

  BpeSymbol* Next(const BpeSymbol& s) {
    return s.next < 0 ? nullptr : &symbols[static_cast<size_t>(s.next)];
  }

  // The pair that begins at `left`, if it can merge.
  template <typename PairFn>
  bool MakeEntry(int32_t left, PairFn& pair, Entry* out) {
    if (left < 0) return false;
    const BpeSymbol& a = symbols[static_cast<size_t>(left)];
    const BpeSymbol* b = Next(a);
    if (b == nullptr) return false;
    const BpePair p = pair(a, *b);
    *out = {p.key, left, a.size + b->size};
    return p.key != UINT32_MAX;
  }
  template <typename PairFn>
  void Push(int32_t left, PairFn& pair) {
    Entry entry;
    if (!MakeEntry(left, pair, &entry)) return;
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end());
  }

  template <typename PairFn>
  void MergeLarge(PairFn pair) {
    const auto n = static_cast<int32_t>(symbols.size());
    for (int32_t i = 0; i < n; ++i) {
      symbols[static_cast<size_t>(i)].prev = i - 1;
      symbols[static_cast<size_t>(i)].next = i + 1 < n ? i + 1 : -1;
    }
    heap_.clear();
    heap_.reserve(symbols.size());
    Entry entry;
    for (int32_t i = 0; i < n; ++i) {
      if (MakeEntry(i, pair, &entry)) heap_.push_back(entry);
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Entry e = heap_.back();
      heap_.pop_back();
      BpeSymbol& a = symbols[static_cast<size_t>(e.left)];
      BpeSymbol* b = Next(a);
      if (a.size == 0 || b == nullptr || a.size + b->size != e.size) continue;
      a.id = pair(a, *b).merged;
      a.size = e.size;
      b->size = 0;
      a.next = b->next;
      if (a.next >= 0) symbols[static_cast<size_t>(a.next)].prev = e.left;
      Push(a.prev, pair);
      Push(e.left, pair);
    }
    // A long piece must not leave its scratch behind for the rest of the call.
    if (heap_.capacity() > 65536) heap_ = {};
  }

  std::vector<Entry> heap_;
};

}  // namespace sluice::text
