// Pages of KV memory with reference counts, and the page tables of sequences.
//
// Contract: pure bookkeeping over one arena; owned by one thread; all calls O(1) (Fork and Clear:
// O(pages of the sequence)); no allocation after construction. A page holds kKvPageTokens tokens of
// every layer; its inner layout belongs to the model. Invariant: references of a page = page tables
// that hold it + explicit Ref calls; a page with more than one reference must not be written
// (MakeOwn copies it first).
//
// There may be fewer frames (the memory of a page) than pages. Then a page may be away: whoever
// evicts it keeps its bytes (runtime/kv_spill.h), and fetches them before the page is written,
// copied, or read here. A page that is saved has the same bytes there as here.
//
// The part of a page that belongs to sliding-window layers has frames of its own, fewer than pages
// are. A page has such a frame (which may outlive its other one) or its sliding part is lost; with
// one, the rows of all its tokens are there. A pool without sliding parts says that all have them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "memory/arena.h"

namespace sluice {

class KvPagePool {
 public:
  // The pages' memory comes into being as it is used. frames <= pages; none: as many as pages.
  static Result<KvPagePool> Make(Ledger* ledger, uint64_t page_bytes, uint32_t pages,
                                 uint32_t frames = 0, uint64_t sliding_bytes = 0,
                                 uint32_t sliding_frames = 0);
  KvPagePool() = default;

  // A page with one reference and a frame, its bytes undefined; -1 when there is none.
  int Alloc();
  void Ref(int page);
  void Unref(int page);
  uint32_t references(int page) const { return references_[static_cast<size_t>(page)]; }
  // nullptr while the page is away.
  uint8_t* data(int page) const {
    const int32_t frame = frame_[static_cast<size_t>(page)];
    return frame < 0 ? nullptr : arena_.data() + static_cast<uint64_t>(frame) * page_bytes_;
  }
  bool resident(int page) const { return frame_[static_cast<size_t>(page)] >= 0; }
  // A saved page gives its frame to others.
  void Evict(int page);
  // A frame for a page that is away, its bytes undefined; false when none is free.
  bool Fetch(int page);
  bool saved(int page) const { return saved_[static_cast<size_t>(page)] != 0; }
  void SetSaved(int page, bool saved) { saved_[static_cast<size_t>(page)] = saved ? 1 : 0; }

  // The sliding part; nullptr without one.
  uint8_t* sliding_data(int page) const {
    if (sliding_bytes_ == 0) return nullptr;
    const int32_t frame = sliding_frame_[static_cast<size_t>(page)];
    return frame < 0 ? nullptr : sliding_.data() + static_cast<uint64_t>(frame) * sliding_bytes_;
  }
  bool has_sliding(int page) const {
    return sliding_bytes_ == 0 || sliding_frame_[static_cast<size_t>(page)] >= 0;
  }
  // A frame for a page's sliding part, its bytes undefined; false when none is free.
  bool TakeSliding(int page);
  void DropSliding(int page);
  uint64_t sliding_bytes() const { return sliding_bytes_; }
  uint32_t free_sliding_frames() const {
    return static_cast<uint32_t>(free_sliding_frames_.size());
  }

  uint64_t page_bytes() const { return page_bytes_; }
  uint32_t pages() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t frames() const { return frames_; }
  uint32_t free_pages() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t free_frames() const { return static_cast<uint32_t>(free_frames_.size()); }

 private:
  Arena arena_, sliding_;
  uint64_t page_bytes_ = 0, sliding_bytes_ = 0;
  uint32_t frames_ = 0;
  std::vector<uint32_t> references_;
  std::vector<int32_t> frame_;  // by page; -1: free or away
  std::vector<uint8_t> saved_;
  std::vector<int32_t> sliding_frame_;  // by page; -1: free or lost
  std::vector<int32_t> free_, free_frames_, free_sliding_frames_;
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
  std::span<const int32_t> ids() const { return table_; }
  uint8_t* data(uint32_t index) const { return pool_->data(table_[index]); }
  uint8_t* sliding_data(uint32_t index) const { return pool_->sliding_data(table_[index]); }

  // Room for `tokens` more, on pages that are this table's own, new ones without sliding parts; a
  // last page with room must not be away. kContextFull when the table or the pool is full; then
  // nothing has changed.
  Status Append(uint32_t tokens);
  // Keeps the first `tokens`; pages beyond go back.
  void Truncate(uint32_t tokens);
  void Clear() { Truncate(0); }
  // Shares the first `tokens` of another table of the same pool; this one must be empty.
  Status Fork(const KvPageTable& from, uint32_t tokens);
  // Takes a reference of a page that holds the next `tokens` (1 to 64) of this timeline; the table
  // must end at a page boundary and have room.
  void Adopt(int page, uint32_t tokens);
  // Gives the table a private copy of a shared page, before a write into its middle. The copy has
  // no sliding part when the page has none or no frame for it is free.
  Status MakeOwn(uint32_t index);

 private:
  KvPagePool* const pool_;
  const uint32_t pages_max_;
  std::vector<int32_t> table_;
  uint32_t tokens_ = 0;
};

}  // namespace sluice
