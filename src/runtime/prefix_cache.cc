#include "runtime/prefix_cache.h"

#include <algorithm>

namespace sluice {

PrefixCache::PrefixCache(KvPagePool* pool) : pool_(pool), entries_(pool->pages()) {}

void PrefixCache::Drop(int page) {
  Entry& entry = entries_[static_cast<size_t>(page)];
  if (entry.count == 0) return;
  entry.count = 0;
  --used_;
  pool_->Unref(page);
}

void PrefixCache::Add(const PrefixKey& parent, std::span<const TokenId> tokens, int page) {
  if (tokens.empty() || tokens.size() > kKvPageTokens) return;
  Entry& entry = entries_[static_cast<size_t>(page)];
  if (entry.count == 0) {
    pool_->Ref(page);
    ++used_;
  }
  entry.parent = parent;
  std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
  entry.count = static_cast<uint32_t>(tokens.size());
  entry.touched = ++clock_;
}

PrefixCache::Match PrefixCache::Find(const PrefixKey& parent, std::span<const TokenId> ids) {
  Match best;
  for (size_t page = 0; page < entries_.size(); ++page) {
    const Entry& entry = entries_[page];
    if (entry.count == 0 || !(entry.parent == parent)) continue;
    const size_t most = std::min<size_t>(entry.count, ids.size());
    const auto end = entry.tokens.begin() + static_cast<long>(most);
    const auto differs = std::mismatch(entry.tokens.begin(), end, ids.begin()).first;
    const auto same = static_cast<uint32_t>(differs - entry.tokens.begin());
    if (same > best.tokens) best = {static_cast<int>(page), same};
  }
  if (best.page >= 0) entries_[static_cast<size_t>(best.page)].touched = ++clock_;
  return best;
}

bool PrefixCache::FreeOne(bool with_frame) {
  int oldest = -1;
  for (size_t page = 0; page < entries_.size(); ++page) {
    const int id = static_cast<int>(page);
    if (entries_[page].count == 0 || pool_->references(id) > 1) continue;
    if (with_frame && !pool_->resident(id)) continue;
    if (oldest < 0 || entries_[page].touched < entries_[static_cast<size_t>(oldest)].touched)
      oldest = id;
  }
  if (oldest >= 0) Drop(oldest);
  return oldest >= 0;
}

void PrefixCache::Clear() {
  for (size_t page = 0; page < entries_.size(); ++page) Drop(static_cast<int>(page));
}

}  // namespace sluice
