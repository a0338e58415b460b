// Pages of KV memory with reference counts, and the page tables of sequences.
//
// Contract: pure bookkeeping over one arena; owned by one thread; all calls O(1) (Fork and Clear:
// O(pages of the sequence)); no allocation after construction. A page holds kKvPageTokens tokens of
// every layer; its inner layout belongs to the model. Invariant: references of a page = page tables
// that hold it + explicit Ref calls; a page with more than one reference must not be written
// (MakeOwn copies it first).
#pragma once

#include <cstdint>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "memory/arena.h"

namespace sluice {

class KvPagePool {
 public:
  // The pages' memory comes into being as it is used.
  static Result<KvPagePool> Make(Ledger* ledger, uint64_t page_bytes, uint32_t pages);
  KvPagePool() = default;

  // A page with one reference, its bytes undefined; -1 when none is free.
  int Alloc();
  void Ref(int page);
  void Unref(int page);
  uint32_t references(int page) const { return references_[static_cast<size_t>(page)]; }
  uint8_t* data(int page) const {
    return arena_.data() + static_cast<uint64_t>(page) * page_bytes_;
  }

  uint64_t page_bytes() const { return page_bytes_; }
  uint32_t pages() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t free_pages() const { return static_cast<uint32_t>(free_.size()); }

 private:
  Arena arena_;
  uint64_t page_bytes_ = 0;
  std::vector<uint32_t> references_;
  std::vector<int32_t> free_;
};

// The pages of one timeline, in order. Returns its references when destroyed.
class KvPageTable {
 public:
  KvPageTable(KvPagePool* pool, uint32_t pages_max);
  ~KvPageTable() { Clear(); }
  KvPageTable(const KvPageTable&) = delete;
  KvPageTable& operator=(const KvPageTable&) = delete;

  uint32_t tokens() const { return tokens_; }
  uint32_t pages() const { return static_cast<uint32_t>(table_.size()); }
  int page(uint32_t index) const { return table_[index]; }
  uint8_t* data(uint32_t index) const { return pool_->data(table_[index]); }

  // Room for `tokens` more, on pages that are this table's own. kContextFull when the table or the
  // pool is full; then nothing has changed.
  Status Append(uint32_t tokens);
  // Keeps the first `tokens`; pages beyond go back.
  void Truncate(uint32_t tokens);
  void Clear() { Truncate(0); }
  // Shares the first `tokens` of another table of the same pool; this one must be empty.
  Status Fork(const KvPageTable& from, uint32_t tokens);
  // Takes a reference of a page that holds the next `tokens` (1 to 64) of this timeline; the table
  // must end at a page boundary and have room.
  void Adopt(int page, uint32_t tokens);
  // Gives the table a private copy of a shared page, before a write into its middle.
  Status MakeOwn(uint32_t index);

 private:
  KvPagePool* const pool_;
  const uint32_t pages_max_;
  std::vector<int32_t> table_;
  uint32_t tokens_ = 0;
};

}  // namespace sluice
