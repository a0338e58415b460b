// Sequence: the memory of one timeline: its tokens, KV pages and recurrent state.
//
// Contract: the engine's step thread only. Pages come from the engine's pool, are shared with other
// timelines that begin with the same text and copied before they are written; they go back on
// destruction, which leaves what they hold in the prefix cache. length() counts tokens whose state
// is complete; rows beyond it may hold leftovers of a failed step and are overwritten. Recurrent
// state has no past: after a failed step or a cut it is stale, and the next step goes on from the
// newest checkpoint before the cut (or from the start: slow, but never wrong). Sliding-window
// layers keep their window only: after a cut to where it has passed, its pages are read back from
// flash, or computed again (src/runtime/sequence_sliding.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/tile.h"
#include "runtime/kv_spill.h"
#include "runtime/prefix_cache.h"
#include "runtime/prefix_store.h"
#include "sluice/types.h"

namespace sluice {

// What the timelines of an engine share.
struct SequencePool {
  KvPagePool* pages = nullptr;  // null: no attention layer
  std::vector<float*> free_states;
  uint64_t state_floats = 0;
  PrefixCache* cache = nullptr;  // null exactly when pages is
  PrefixStore* store = nullptr;  // null: nothing is kept on flash
  KvSpill* spill = nullptr;      // null: every page has a frame
  PrefixKey root;
  // Where pages have sliding parts: the window in tokens, room for a page with its sliding part,
  // and when the part of each was last at hand, by page.
  uint32_t sliding_window = 0;
  MutableByteSpan scratch;
  std::vector<uint64_t> sliding_used;
  uint64_t sliding_clock = 0;
};

class Sequence {
 public:
  Sequence(SequencePool* pool, uint32_t context);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Before a step up to `tokens`: pages of this timeline's own for positions [length, tokens), or,
  // where pages may be away, the certainty that there will be. kContextFull when the pool is empty.
  Status Reserve(uint32_t tokens);
  // Before each chunk: the pages of positions [from, to) are here, are this timeline's own and may
  // be written; no more pages are away than the window holds; the sliding parts that the chunk
  // writes and reads are here.
  Status Extend(uint32_t from, uint32_t to);
  void Cut(uint32_t n);  // keeps the first n tokens
  // A step failed after `done` complete tokens: those from n on never were.
  void Undo(uint32_t n, uint32_t done);
  // Makes the timeline the longest beginning of ids, shorter than ids, whose state is known: its
  // own, that of another timeline, or what flash has. Returns its length.
  uint32_t Align(std::span<const TokenId> ids);
  // Before a step: from which of its tokens on the timeline has to be computed again; length() when
  // nothing was lost. A stale state is loaded from the newest checkpoint, or cleared; sliding parts
  // come from flash where they can.
  uint32_t Resume();
  // Offers full pages of the first n tokens, which are complete, to other timelines.
  void Share(uint32_t n);
  void Share() { Share(length()); }
  // This length is worth a checkpoint (the end of a system prompt). Beyond length(): when it is
  // reached.
  void Mark(uint32_t tokens);
  // Writes to flash what is not there of the first n tokens, while those after them may be on their
  // way: full pages, and checkpoints at the marks that need no state. Errors are for the log.
  Status Keep(uint32_t n);
  Status Keep() { return Keep(length()); }
  // A checkpoint of the recurrent state as it stands.
  Status KeepState();

  const SequenceView& view() const { return view_; }
  std::vector<TokenId>& tokens() { return tokens_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint32_t length() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t context() const { return context_; }
  bool recurrent() const { return pool_->state_floats > 0; }
  bool has_state() const { return pool_->state_floats == 0 || state_ != nullptr; }
  const std::vector<uint32_t>& marks() const { return marks_; }
  PrefixStore* store() const { return pool_->store; }
  // The name of the first n tokens, n <= length().
  PrefixKey KeyAt(uint32_t n);
  // Page `index` as bytes, for a checkpoint; until the next call here. Not one that lost its
  // sliding part.
  Result<ByteSpan> PageBytes(uint32_t index) const;
  // What KvSpill needs for a chunk.
  std::span<const int32_t> page_ids() const {
    return table_ ? table_->ids() : std::span<const int32_t>();
  }
  uint8_t** page_pointers() { return pointers_.data(); }
  // A page whose bytes were damaged must not be found by others.
  void ForgetDamaged();
  // A checkpoint of the first n tokens, to be filled by the caller; store() is not null.
  Result<std::unique_ptr<CheckpointWriter>> Begin(uint32_t n);
  bool state_stale = false;

 private:
  struct Found {
    uint32_t tokens = 0;
    bool checkpoint = false;  // on flash, exactly there
    PrefixCache::Match tail;  // in memory: the page of the last tokens % 64
  };
  void ClearState();
  void ShowPages();
  // Pages [keep, keep_end) of this timeline keep their frames.
  Status MakeRoom(uint32_t pages, uint32_t keep, uint32_t keep_end);
  Status MakeRoom(uint32_t pages) { return MakeRoom(pages, table_->pages(), table_->pages()); }
  Status FreeFrames(uint32_t frames, uint32_t keep, uint32_t keep_end);
  Status FetchPage(uint32_t index);
  Status FillFrames();
  Status KeepPages(uint32_t n);
  Status KeepMarks(uint32_t n);
  uint32_t RestoreState();
  bool sliding() const { return pool_->sliding_window > 0; }
  bool HasSliding(uint32_t index) const { return pool_->pages->has_sliding(table_->page(index)); }
  uint32_t FirstSlidingPage(uint32_t n) const;
  Status ExtendFrames(uint32_t from, uint32_t to);
  Status ExtendSliding(uint32_t from, uint32_t to);
  void FreeSliding(uint32_t frames, uint32_t keep, uint32_t keep_end);
  void MakeRoomForCopy();
  bool FetchSliding(uint32_t index, uint32_t keep, uint32_t keep_end);
  bool FetchWindow(uint32_t n);
  void RememberSliding(int page);
  void KeepBeforeLoss(int page);
  // Has `fill` make a whole page and puts it where page `index` lies.
  bool FillPage(uint32_t index, const std::function<bool(MutableByteSpan)>& fill);
  void ChainTo(std::span<const TokenId> ids, uint32_t pages);
  PrefixKey KeyOf(std::span<const TokenId> ids, uint32_t n) const;
  uint32_t KnownPages(std::span<const TokenId> ids, uint32_t common, uint32_t limit);
  Found FindBest(std::span<const TokenId> ids, uint32_t live, uint32_t pages, uint32_t limit);
  Found FindCheckpoint(std::span<const TokenId> ids, uint32_t above, uint32_t limit);
  // Returns how far it came: found.tokens, or fewer when flash did not hold what it promised.
  uint32_t Load(std::span<const TokenId> ids, const Found& found);
  bool LoadPage(std::span<const TokenId> ids, uint32_t index);
  bool LoadTail(std::span<const TokenId> ids, const Found& found);
  bool LoadState(uint32_t n);
  MutableByteSpan StateBytes() const;

  SequencePool* pool_;
  uint32_t context_;
  std::vector<TokenId> tokens_;
  std::optional<KvPageTable> table_;                   // none without attention layers
  std::vector<uint8_t*> pointers_, sliding_pointers_;  // what the kernels see
  std::vector<PrefixKey> keys_;  // [i]: of the first i pages of the chain at hand
  std::vector<uint32_t> marks_;
  uint32_t shared_pages_ = 0, kept_pages_ = 0;  // full pages offered, written
  float* state_ = nullptr;
  SequenceView view_;
};

}  // namespace sluice
