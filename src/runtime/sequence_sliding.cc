// Sequence: layers with a sliding window. Their part of a page has a frame of its own while the
// window reaches the page. When frames run out, the part that was at hand longest ago is lost,
// after its page has been written to flash where there is a store. Whoever comes back to a place
// whose window is lost (an edit, another text with the same beginning) has it read from there, or
// the tokens since the last place with a whole window are computed again.
#include <string.h>

#include <algorithm>

#include "base/log.h"
#include "runtime/sequence.h"

namespace sluice {

// The first page that a row at position n reads.
uint32_t Sequence::FirstSlidingPage(uint32_t n) const {
  const uint32_t window = pool_->sliding_window;
  return n < window ? 0 : (n - window + 1) / kKvPageTokens;
}

Status Sequence::ExtendSliding(uint32_t from, uint32_t to) {
  const uint32_t first = FirstSlidingPage(from), end = (to + kKvPageTokens - 1) / kKvPageTokens;
  uint32_t wanted = 0;
  for (uint32_t i = first; i < end; ++i) {
    if (HasSliding(i)) continue;
    if (i * kKvPageTokens < from) return Status(Code::kFailed, "a window that is not whole");
    ++wanted;
  }
  FreeSliding(wanted, first, end);
  for (uint32_t i = first; i < end; ++i) {
    if (!HasSliding(i) && !pool_->pages->TakeSliding(table_->page(i)))
      return Status(Code::kFailed, "no frame for the window of a sliding layer");
    sliding_pointers_[i] = table_->sliding_data(i);
  }
  return {};
}

// Before a shared last page is copied.
void Sequence::MakeRoomForCopy() {
  const uint32_t last = table_->pages();
  if (!sliding() || length() % kKvPageTokens == 0 || last == 0) return;
  if (pool_->pages->references(table_->page(last - 1)) > 1)
    FreeSliding(1, FirstSlidingPage(length()), last);
}

// Pages [keep, keep_end) of this timeline are at hand: they keep theirs. What cannot be had is left
// to the caller to find.
void Sequence::FreeSliding(uint32_t frames, uint32_t keep, uint32_t keep_end) {
  KvPagePool& pages = *pool_->pages;
  std::vector<uint64_t>& used = pool_->sliding_used;
  const uint64_t now = ++pool_->sliding_clock;
  for (uint32_t i = keep; i < std::min(keep_end, table_->pages()); ++i)
    used[static_cast<size_t>(table_->page(i))] = now;
  while (pages.free_sliding_frames() < frames) {
    size_t oldest = used.size();
    for (size_t page = 0; page < used.size(); ++page) {
      if (pages.sliding_data(static_cast<int>(page)) == nullptr || used[page] == now) continue;
      if (oldest == used.size() || used[page] < used[oldest]) oldest = page;
    }
    if (oldest == used.size()) return;
    KeepBeforeLoss(static_cast<int>(oldest));
    pages.DropSliding(static_cast<int>(oldest));
  }
}

// A page of another timeline is written by that one, or not at all.
void Sequence::KeepBeforeLoss(int page) {
  if (pool_->store == nullptr) return;
  const std::span<const int32_t> ids = table_->ids();
  const auto at = static_cast<uint32_t>(std::find(ids.begin(), ids.end(), page) - ids.begin());
  const uint32_t n = (at + 1) * kKvPageTokens;
  if (at == ids.size() || n > length()) return;
  const Status status = Keep(n);
  if (!status.ok())
    LogOnce(LogLevel::kNotice, "sliding parts", "a window is not kept: " + status.ToString());
}

// Into a frame of the page's own; without one the part stays lost.
void Sequence::RememberSliding(int page) {
  KvPagePool& pages = *pool_->pages;
  if (!pages.has_sliding(page) && !pages.TakeSliding(page)) return;
  memcpy(pages.sliding_data(page), pool_->scratch.data() + pages.page_bytes(),
         pages.sliding_bytes());
  pool_->sliding_used[static_cast<size_t>(page)] = pool_->sliding_clock;
}

bool Sequence::FetchSliding(uint32_t index, uint32_t keep, uint32_t keep_end) {
  const uint32_t n = (index + 1) * kKvPageTokens;
  if (pool_->store == nullptr || n > length()) return false;
  const PrefixKey key = KeyAt(n);
  if (!pool_->store->HasPage(key)) return false;
  FreeSliding(1, keep, keep_end);
  const auto tokens = std::span<const TokenId>(tokens_).subspan(n - kKvPageTokens, kKvPageTokens);
  if (!pool_->store->GetPage(key, tokens, pool_->scratch)) return false;
  RememberSliding(table_->page(index));
  return HasSliding(index);
}

// What a row at position n reads is here.
bool Sequence::FetchWindow(uint32_t n) {
  const uint32_t first = FirstSlidingPage(n), end = (n + kKvPageTokens - 1) / kKvPageTokens;
  for (uint32_t i = end; i-- > first;) {
    if (!HasSliding(i) && !FetchSliding(i, first, end)) return false;
  }
  return true;
}

}  // namespace sluice
