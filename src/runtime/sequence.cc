#include "runtime/sequence.h"

#include <string.h>

#include <algorithm>

namespace sluice {
namespace {

uint32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<long>(most), b.begin()).first - a.begin());
}

std::span<const TokenId> PageOf(std::span<const TokenId> ids, uint32_t page) {
  return ids.subspan(uint64_t{page} * kKvPageTokens, kKvPageTokens);
}

// The tokens of the first n that follow the last full page.
std::span<const TokenId> TailOf(std::span<const TokenId> ids, uint32_t n) {
  const uint32_t rest = n % kKvPageTokens;
  return ids.subspan(n - rest, rest);
}

}  // namespace

Sequence::Sequence(SequencePool* pool, uint32_t context) : pool_(pool), context_(context) {
  const uint32_t pages = (context + kKvPageTokens - 1) / kKvPageTokens;
  tokens_.reserve(context);
  keys_.reserve(pages + 1);
  keys_.push_back(pool->root);
  pointers_.resize(pages, nullptr);
  if (sliding()) sliding_pointers_.resize(pages, nullptr);
  if (pool->pages != nullptr) table_.emplace(pool->pages, pages);
  if (pool->state_floats > 0 && !pool->free_states.empty()) {
    state_ = pool->free_states.back();
    pool->free_states.pop_back();
    ClearState();
  }
  view_ = {pointers_.data(), state_, sliding_pointers_.data()};
}

Sequence::~Sequence() {
  Cut(0);
  if (state_ != nullptr) pool_->free_states.push_back(state_);
}

void Sequence::ShowPages() {
  for (uint32_t i = 0; i < table_->pages(); ++i) pointers_[i] = table_->data(i);
  for (uint32_t i = 0; sliding() && i < table_->pages(); ++i)
    sliding_pointers_[i] = table_->sliding_data(i);
}

void Sequence::Cut(uint32_t n) {
  if (n >= length()) return;
  Share();
  // The page that the end lies in: whoever comes back finds it.
  const uint32_t full = length() / kKvPageTokens, rest = length() % kKvPageTokens;
  if (table_ && rest > 0 && !recurrent()) {
    const std::span<const TokenId> tail = std::span<const TokenId>(tokens_).last(rest);
    pool_->cache->Add(KeyAt(full * kKvPageTokens), tail, table_->page(full));
  }
  tokens_.resize(n);
  const uint32_t pages = n / kKvPageTokens;
  if (keys_.size() > pages + 1) keys_.resize(pages + 1);
  shared_pages_ = std::min(shared_pages_, pages);
  kept_pages_ = std::min(kept_pages_, pages);
  std::erase_if(marks_, [n](uint32_t mark) { return mark > n; });
  if (recurrent()) state_stale = n > 0;
  if (recurrent() && n == 0) ClearState();
  if (table_) table_->Truncate(n);
}

void Sequence::Undo(uint32_t n, uint32_t done) {
  const uint32_t pages = n / kKvPageTokens;
  tokens_.resize(n);
  keys_.resize(std::min<size_t>(keys_.size(), pages + 1));
  shared_pages_ = std::min(shared_pages_, pages);
  kept_pages_ = std::min(kept_pages_, pages);
  if (recurrent()) state_stale = true;
  if (!table_) return;
  table_->Truncate(n);
  // Sliding parts that were being computed again and are not whole.
  for (uint32_t i = done / kKvPageTokens; sliding() && done < n && i < table_->pages(); ++i)
    pool_->pages->DropSliding(table_->page(i));
}

void Sequence::ClearState() {
  if (state_ != nullptr) std::fill(state_, state_ + pool_->state_floats, 0.0f);
  state_stale = false;
}

PrefixKey Sequence::KeyAt(uint32_t n) {
  ChainTo(tokens_, n / kKvPageTokens);
  return KeyOf(tokens_, n);
}

// The same for the text that keys_ belongs to at the moment, as far as its pages are chained.
PrefixKey Sequence::KeyOf(std::span<const TokenId> ids, uint32_t n) const {
  const PrefixKey& page = keys_[n / kKvPageTokens];
  return n % kKvPageTokens == 0 ? page : ChainKey(page, TailOf(ids, n));
}

void Sequence::ChainTo(std::span<const TokenId> ids, uint32_t pages) {
  while (keys_.size() <= pages) {
    const auto page = static_cast<uint32_t>(keys_.size()) - 1;
    keys_.push_back(ChainKey(keys_.back(), PageOf(ids, page)));
  }
}

Result<ByteSpan> Sequence::PageBytes(uint32_t index) const {
  const KvPagePool& pages = *pool_->pages;
  const int page = table_->page(index);
  ByteSpan bytes(pages.data(page), pages.page_bytes());
  if (!pages.resident(page)) {
    SLUICE_ASSIGN(bytes, pool_->spill->Peek(page));
  }
  if (!sliding()) return bytes;
  if (!pages.has_sliding(page)) return Status(Code::kFailed, "a page without its sliding part");
  memcpy(pool_->scratch.data(), bytes.data(), bytes.size());
  memcpy(pool_->scratch.data() + bytes.size(), pages.sliding_data(page), pages.sliding_bytes());
  return ByteSpan(pool_->scratch);
}

bool Sequence::FillPage(uint32_t index, const std::function<bool(MutableByteSpan)>& fill) {
  KvPagePool& pages = *pool_->pages;
  const int page = table_->page(index);
  const MutableByteSpan here(pages.data(page), pages.page_bytes());
  if (!sliding()) return fill(here);
  FreeSliding(1, index, index + 1);  // which may use the scratch memory
  if (!fill(pool_->scratch)) return false;
  memcpy(here.data(), pool_->scratch.data(), here.size());
  RememberSliding(page);
  return true;
}

MutableByteSpan Sequence::StateBytes() const {
  return {reinterpret_cast<uint8_t*>(state_), pool_->state_floats * sizeof(float)};
}

void Sequence::Share(uint32_t n) {
  if (!table_) return;
  const uint32_t full = n / kKvPageTokens;
  ChainTo(tokens_, full);
  for (; shared_pages_ < full; ++shared_pages_) {
    const uint32_t i = shared_pages_;
    pool_->cache->Add(keys_[i], PageOf(tokens_, i), table_->page(i));
  }
}

// Full pages of ids that are known somewhere, in an unbroken run from the start.
uint32_t Sequence::KnownPages(std::span<const TokenId> ids, uint32_t common, uint32_t limit) {
  uint32_t pages = common / kKvPageTokens;
  for (; (pages + 1) * kKvPageTokens <= limit; ++pages) {
    ChainTo(ids, pages + 1);
    const auto tokens = PageOf(ids, pages);
    if (pool_->cache->Find(keys_[pages], tokens).tokens == kKvPageTokens) continue;
    if (pool_->store == nullptr || !pool_->store->HasPage(keys_[pages + 1])) break;
  }
  return pages;
}

Sequence::Found Sequence::FindCheckpoint(std::span<const TokenId> ids, uint32_t above,
                                         uint32_t limit) {
  for (uint32_t n = limit; n > above && pool_->store != nullptr; --n) {
    if (pool_->store->HasCheckpoint(KeyOf(ids, n))) return {n, true, {}};
  }
  return {};
}

Sequence::Found Sequence::FindBest(std::span<const TokenId> ids, uint32_t live, uint32_t pages,
                                   uint32_t limit) {
  const uint32_t full = pages * kKvPageTokens;
  const uint32_t reach = std::min(limit, full + kKvPageTokens - 1);
  ChainTo(ids, pages);
  if (recurrent()) return FindCheckpoint(ids, live, reach);
  Found best{full, false, {}};
  if (reach > full) {
    best.tail = pool_->cache->Find(keys_[pages], ids.subspan(full, reach - full));
    best.tokens += best.tail.tokens;
  }
  const Found kept = FindCheckpoint(ids, best.tokens, reach);
  return kept.tokens > best.tokens ? kept : best;
}

uint32_t Sequence::Align(std::span<const TokenId> ids) {
  const uint32_t limit =
      ids.empty() ? 0 : std::min(static_cast<uint32_t>(ids.size()) - 1, context_);
  const uint32_t common = std::min(CommonPrefix(tokens_, ids), limit);
  const bool intact = !recurrent() || (common == length() && !state_stale);
  const uint32_t live = intact ? common : 0;
  Share();
  if (pool_->store != nullptr) pool_->store->Refresh();
  for (uint32_t most = limit; table_ && has_state() && most > live;) {
    // What is kept of keys_ belongs to the text that both have in common.
    keys_.resize(std::min<size_t>(keys_.size(), common / kKvPageTokens + 1));
    const uint32_t pages = KnownPages(ids, std::min(common, length()), most);
    const Found found = FindBest(ids, live, pages, most);
    if (found.tokens <= live) break;
    const uint32_t got = Load(ids, found);
    if (got == found.tokens) return got;
    most = std::max(live, std::min(got, found.tokens - 1));  // flash promised more than it had
  }
  if (common < length() || !intact) Cut(live);
  return length();
}

uint32_t Sequence::Load(std::span<const TokenId> ids, const Found& found) {
  const uint32_t rest = found.tokens % kKvPageTokens, pages = found.tokens / kKvPageTokens;
  const uint32_t kept = std::min({CommonPrefix(tokens_, ids), found.tokens, length()});
  Cut(kept / kKvPageTokens * kKvPageTokens);
  for (uint32_t i = table_->pages(); i < pages; ++i) {
    if (!LoadPage(ids, i)) break;
  }
  const bool whole = table_->pages() == pages;
  if (whole && (rest > 0 || recurrent()) && !LoadTail(ids, found))
    table_->Truncate(pages * kKvPageTokens);
  const uint32_t got = std::min(found.tokens, table_->tokens());
  tokens_.assign(ids.begin(), ids.begin() + got);
  keys_.resize(std::min<size_t>(keys_.size(), got / kKvPageTokens + 1));
  shared_pages_ = std::min(shared_pages_, got / kKvPageTokens);
  kept_pages_ = std::min(kept_pages_, got / kKvPageTokens);
  ShowPages();
  if (recurrent()) state_stale = got != found.tokens || !whole;
  return state_stale ? std::min(got, found.tokens - 1) : got;
}

bool Sequence::LoadPage(std::span<const TokenId> ids, uint32_t index) {
  const auto tokens = PageOf(ids, index);
  const PrefixCache::Match here = pool_->cache->Find(keys_[index], tokens);
  if (here.tokens == kKvPageTokens) {
    table_->Adopt(here.page, kKvPageTokens);
    return true;
  }
  if (pool_->store == nullptr || !MakeRoom(1).ok() || !table_->Append(kKvPageTokens).ok())
    return false;
  const auto get = [&](MutableByteSpan page) {
    return pool_->store->GetPage(keys_[index + 1], tokens, page);
  };
  if (FillPage(index, get)) return true;
  table_->Truncate(index * kKvPageTokens);
  return false;
}

// The rows after the last full page, and the recurrent state.
bool Sequence::LoadTail(std::span<const TokenId> ids, const Found& found) {
  const uint32_t rest = found.tokens % kKvPageTokens, pages = found.tokens / kKvPageTokens;
  if (!found.checkpoint) {
    table_->Adopt(found.tail.page, rest);
    return true;
  }
  const auto get = [&](MutableByteSpan page) {
    return pool_->store->GetCheckpoint(KeyOf(ids, found.tokens), found.tokens,
                                       TailOf(ids, found.tokens), page, StateBytes());
  };
  if (rest == 0) return get({});
  return MakeRoom(1).ok() && table_->Append(rest).ok() && FillPage(pages, get);
}

uint32_t Sequence::Resume() {
  if (state_stale) return RestoreState();
  if (!sliding()) return length();
  // Back to where a window is whole, page by page: its rows are computed again from there.
  uint32_t n = length();
  while (!FetchWindow(n)) n = (n - 1) / kKvPageTokens * kKvPageTokens;
  return n;
}

uint32_t Sequence::RestoreState() {
  for (uint32_t n = length(); n > 0 && pool_->store != nullptr; --n) {
    if (!pool_->store->HasCheckpoint(KeyAt(n)) || !LoadState(n)) continue;
    state_stale = false;
    return n;
  }
  ClearState();
  return 0;
}

// The state alone: the rows of the checkpoint's page are in the timeline's own pages already, which
// others may share.
bool Sequence::LoadState(uint32_t n) {
  const auto tail = TailOf(tokens_, n);
  if (tail.empty()) return pool_->store->GetCheckpoint(KeyAt(n), n, tail, {}, StateBytes());
  if (!MakeRoom(1).ok()) return false;
  const int page = pool_->pages->Alloc();
  if (page < 0) return false;
  const bool good = pool_->store->GetCheckpoint(
      KeyAt(n), n, tail, {pool_->pages->data(page), pool_->pages->page_bytes()}, StateBytes());
  pool_->pages->Unref(page);
  return good;
}

void Sequence::Mark(uint32_t tokens) {
  if (tokens > 0 && tokens <= context_ &&
      std::find(marks_.begin(), marks_.end(), tokens) == marks_.end()) {
    marks_.push_back(tokens);
  }
}

Status Sequence::KeepPages(uint32_t n) {
  const uint32_t full = n / kKvPageTokens;
  ChainTo(tokens_, full);
  for (; kept_pages_ < full; ++kept_pages_) {
    const uint32_t i = kept_pages_;
    if (pool_->store->HasPage(keys_[i + 1])) continue;
    if (!HasSliding(i)) return {};  // and what follows it is of no use
    SLUICE_ASSIGN(const ByteSpan page, PageBytes(i));
    SLUICE_TRY(pool_->store->PutPage(keys_[i + 1], PageOf(tokens_, i), page));
  }
  return {};
}

Status Sequence::Keep(uint32_t n) {
  if (!table_ || pool_->store == nullptr) return {};
  SLUICE_TRY(KeepPages(n));
  return KeepMarks(n);
}

Status Sequence::KeepMarks(uint32_t n) {
  if (recurrent()) return {};
  for (uint32_t mark : marks_) {
    const uint32_t rest = mark % kKvPageTokens;
    if (mark > n || rest == 0 || !HasSliding(mark / kKvPageTokens)) continue;
    if (pool_->store->HasCheckpoint(KeyAt(mark))) continue;
    SLUICE_ASSIGN(const std::unique_ptr<CheckpointWriter> writer, Begin(mark));
    SLUICE_ASSIGN(const ByteSpan page, PageBytes(mark / kKvPageTokens));
    SLUICE_TRY(writer->Commit(page));
  }
  return {};
}

Result<std::unique_ptr<CheckpointWriter>> Sequence::Begin(uint32_t n) {
  return pool_->store->BeginCheckpoint(KeyAt(n), n, TailOf(tokens_, n));
}

Status Sequence::KeepState() {
  if (!recurrent() || pool_->store == nullptr || state_stale || length() == 0) return {};
  if (pool_->store->HasCheckpoint(KeyAt(length()))) return {};
  SLUICE_ASSIGN(const std::unique_ptr<CheckpointWriter> writer, Begin(length()));
  SLUICE_TRY(writer->WriteState(0, StateBytes()));
  const uint32_t rest = length() % kKvPageTokens;
  if (rest == 0) return writer->Commit({});
  SLUICE_ASSIGN(const ByteSpan page, PageBytes(length() / kKvPageTokens));
  return writer->Commit(page);
}

}  // namespace sluice
