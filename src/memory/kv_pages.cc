#include "memory/kv_pages.h"

#include <fmt/core.h>
#include <string.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace sluice {
namespace {

uint32_t PagesFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kKvPageTokens - 1) / kKvPageTokens);
}

}  // namespace

Result<KvPagePool> KvPagePool::Make(Ledger* ledger, uint64_t page_bytes, uint32_t pages,
                                    uint32_t frames, uint64_t sliding_bytes,
                                    uint32_t sliding_frames) {
  if (frames == 0 || frames > pages) frames = pages;
  sliding_frames = sliding_bytes > 0 ? std::min(sliding_frames, pages) : 0;
  const std::optional<uint64_t> bytes = CheckedMul(page_bytes, frames);
  const std::optional<uint64_t> sliding = CheckedMul(sliding_bytes, sliding_frames);
  if (!bytes || !sliding || pages > INT32_MAX)
    return Status(Code::kBudget, fmt::format("{} KV pages wanted", pages), "kv");
  KvPagePool pool;
  if (sliding_bytes > 0) {
    SLUICE_ASSIGN(pool.sliding_, Arena::Make(ledger, "kv", *sliding, Touch::kLazily));
    pool.sliding_bytes_ = sliding_bytes;
    pool.sliding_frame_.assign(pages, -1);
    pool.free_sliding_frames_.reserve(sliding_frames);
    for (uint32_t frame = sliding_frames; frame-- > 0;)
      pool.free_sliding_frames_.push_back(static_cast<int32_t>(frame));
  }
  SLUICE_ASSIGN(pool.arena_, Arena::Make(ledger, "kv", *bytes, Touch::kLazily));
  pool.page_bytes_ = page_bytes;
  pool.frames_ = frames;
  pool.references_.assign(pages, 0);
  pool.frame_.assign(pages, -1);
  pool.saved_.assign(pages, 0);
  pool.free_.reserve(pages);
  pool.free_frames_.reserve(frames);
  for (uint32_t page = pages; page-- > 0;) pool.free_.push_back(static_cast<int32_t>(page));
  for (uint32_t frame = frames; frame-- > 0;)
    pool.free_frames_.push_back(static_cast<int32_t>(frame));
  return pool;
}

int KvPagePool::Alloc() {
  if (free_.empty() || free_frames_.empty()) return -1;
  const int page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  SetSaved(page, false);
  Fetch(page);
  return page;
}

void KvPagePool::Evict(int page) {
  assert(resident(page) && saved(page));
  free_frames_.push_back(frame_[static_cast<size_t>(page)]);
  frame_[static_cast<size_t>(page)] = -1;
}

bool KvPagePool::Fetch(int page) {
  assert(!resident(page));
  if (free_frames_.empty()) return false;
  frame_[static_cast<size_t>(page)] = free_frames_.back();
  free_frames_.pop_back();
  return true;
}

void KvPagePool::Ref(int page) {
  assert(references(page) > 0);
  ++references_[static_cast<size_t>(page)];
}

bool KvPagePool::TakeSliding(int page) {
  assert(!has_sliding(page));
  if (free_sliding_frames_.empty()) return false;
  sliding_frame_[static_cast<size_t>(page)] = free_sliding_frames_.back();
  free_sliding_frames_.pop_back();
  return true;
}

void KvPagePool::DropSliding(int page) {
  if (sliding_data(page) == nullptr) return;
  free_sliding_frames_.push_back(sliding_frame_[static_cast<size_t>(page)]);
  sliding_frame_[static_cast<size_t>(page)] = -1;
}

void KvPagePool::Unref(int page) {
  assert(references(page) > 0);
  if (--references_[static_cast<size_t>(page)] > 0) return;
  free_.push_back(page);
  DropSliding(page);
  if (!resident(page)) return;
  free_frames_.push_back(frame_[static_cast<size_t>(page)]);
  frame_[static_cast<size_t>(page)] = -1;
}

KvPageTable::KvPageTable(KvPagePool* pool, uint32_t pages_max)
    : pool_(pool), pages_max_(pages_max) {
  table_.reserve(pages_max);
}

Status KvPageTable::Append(uint32_t tokens) {
  if (tokens == 0) return Status();
  const uint64_t wanted = uint64_t{tokens_} + tokens;
  // New tokens are written into the last page if it has room: it must not be someone else's too.
  const bool shared_tail = tokens_ % kKvPageTokens != 0 && pool_->references(table_.back()) > 1;
  const uint64_t fresh = PagesFor(wanted) - table_.size();
  const uint32_t free = std::min(pool_->free_pages(), pool_->free_frames());
  if (PagesFor(wanted) > pages_max_ || fresh + (shared_tail ? 1 : 0) > free) {
    return Status(
        Code::kContextFull, fmt::format("no KV page for {} more tokens after {}", tokens, tokens_),
        fmt::format("{} of {} pages free, {} pages per sequence", free, pool_->pages(), pages_max_),
        "raise --ctx");
  }
  if (shared_tail) SLUICE_TRY(MakeOwn(static_cast<uint32_t>(table_.size()) - 1));
  for (uint64_t i = 0; i < fresh; ++i) table_.push_back(pool_->Alloc());
  tokens_ = static_cast<uint32_t>(wanted);
  return Status();
}

void KvPageTable::Truncate(uint32_t tokens) {
  if (tokens >= tokens_) return;
  while (table_.size() > PagesFor(tokens)) {
    pool_->Unref(table_.back());
    table_.pop_back();
  }
  tokens_ = tokens;
}

Status KvPageTable::Fork(const KvPageTable& from, uint32_t tokens) {
  assert(table_.empty() && pool_ == from.pool_);
  const uint32_t shared = std::min(tokens, from.tokens_);
  if (PagesFor(shared) > pages_max_) {
    return Status(Code::kContextFull,
                  fmt::format("{} tokens do not fit {} pages", shared, pages_max_), "kv");
  }
  for (uint32_t i = 0; i < PagesFor(shared); ++i) {
    pool_->Ref(from.table_[i]);
    table_.push_back(from.table_[i]);
  }
  tokens_ = shared;
  return Status();
}

void KvPageTable::Adopt(int page, uint32_t tokens) {
  assert(tokens_ % kKvPageTokens == 0 && tokens > 0 && tokens <= kKvPageTokens);
  assert(table_.size() < pages_max_);
  pool_->Ref(page);
  table_.push_back(page);
  tokens_ += tokens;
}

Status KvPageTable::MakeOwn(uint32_t index) {
  const int shared = table_[index];
  if (pool_->references(shared) == 1) return Status();
  assert(pool_->resident(shared));
  const int own = pool_->Alloc();
  if (own < 0) {
    return Status(Code::kContextFull, "no KV page free for a copy",
                  fmt::format("{} pages", pool_->pages()), "raise --ctx");
  }
  memcpy(pool_->data(own), pool_->data(shared), pool_->page_bytes());
  if (const uint8_t* sliding = pool_->sliding_data(shared);
      sliding != nullptr && pool_->TakeSliding(own)) {
    memcpy(pool_->sliding_data(own), sliding, pool_->sliding_bytes());
  }
  pool_->Unref(shared);
  table_[index] = own;
  return Status();
}

}  // namespace sluice
