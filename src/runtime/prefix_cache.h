// PrefixCache: the KV pages in memory, by the text they hold, so that timelines can share them.
//
// Contract: owned by the engine's step thread. An entry is a page, the tokens it holds (64, or
// fewer for the last page of a timeline that ended) and the key of the prefix before it; the cache
// holds one reference of the page, so that it outlives its timeline and nobody writes into it
// (writers copy first). When the pool runs dry FreeOne gives back the page used longest ago that
// nobody else holds (with_frame: of those that are not away). No allocation after construction; at
// most one entry per page of the pool.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/kv_pages.h"
#include "runtime/prefix_key.h"

namespace sluice {

class PrefixCache {
 public:
  explicit PrefixCache(KvPagePool* pool);

  // Remembers `page`; an entry it had before is replaced. tokens: 1 to kKvPageTokens.
  void Add(const PrefixKey& parent, std::span<const TokenId> tokens, int page);
  struct Match {
    int page = -1;
    uint32_t tokens = 0;  // how many of ids the page holds
  };
  // Of the pages that follow `parent`, the one that agrees with the longest beginning of ids.
  Match Find(const PrefixKey& parent, std::span<const TokenId> ids);
  bool FreeOne(bool with_frame = false);
  void Forget(int page) { Drop(page); }
  void Clear();
  static constexpr uint64_t kEntryBytes = kKvPageTokens * sizeof(TokenId) + 48;  // at most
  uint32_t entries() const { return used_; }

 private:
  struct Entry {
    PrefixKey parent;
    std::array<TokenId, kKvPageTokens> tokens;
    uint32_t count = 0;  // 0: no entry
    uint64_t touched = 0;
  };
  static_assert(sizeof(Entry) <= kEntryBytes);
  void Drop(int page);

  KvPagePool* pool_;
  std::vector<Entry> entries_;  // by page
  uint64_t clock_ = 0;
  uint32_t used_ = 0;
};

}  // namespace sluice
