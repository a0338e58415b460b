// Sequence: pages and frames. Which page loses its frame when there are fewer frames than pages
// (docs/kv.md): one that only the prefix cache knows is dropped; else the page of another timeline
// that was used longest ago goes to the spill file; else this timeline's own newest page before the
// ones at hand. Every step walks over all of its pages, and for a cyclic walk a resident set that
// stays as it is saves as many reads as any.
#include <algorithm>

#include "runtime/sequence.h"

namespace sluice {
namespace {

uint32_t PagesFor(uint32_t tokens) { return (tokens + kKvPageTokens - 1) / kKvPageTokens; }

}  // namespace

Status Sequence::Reserve(uint32_t tokens) {
  if (!table_) return {};
  table_->Truncate(length());
  // One more: the page that new tokens are appended to may be shared, and is copied then.
  const uint32_t fresh = PagesFor(tokens) - std::min(PagesFor(tokens), table_->pages());
  if (pool_->spill == nullptr) {
    SLUICE_TRY(MakeRoom(fresh + 1));
    MakeRoomForCopy();
    SLUICE_TRY(table_->Append(tokens - length()));
    ShowPages();
    return {};
  }
  pool_->spill->Touch(table_->ids());
  while (pool_->pages->free_pages() < fresh + 1 && pool_->cache->FreeOne()) {
  }
  if (pool_->pages->free_pages() >= fresh) return {};
  return Status(
      Code::kContextFull, "no KV page is left for this text",
      std::to_string(fresh) + " wanted, " + std::to_string(pool_->pages->free_pages()) + " free",
      "raise --ctx or end another session");
}

Status Sequence::Extend(uint32_t from, uint32_t to) {
  if (!table_) return {};
  if (pool_->spill != nullptr) SLUICE_TRY(ExtendFrames(from, to));
  return sliding() ? ExtendSliding(from, to) : Status();
}

Status Sequence::ExtendFrames(uint32_t from, uint32_t to) {
  KvPagePool& pages = *pool_->pages;
  const uint32_t first = from / kKvPageTokens, end = PagesFor(to);
  uint32_t wanted = end - std::min(end, table_->pages());
  for (uint32_t i = first; i < std::min(end, table_->pages()); ++i)
    wanted += pages.resident(table_->page(i)) ? 0 : 1;
  const uint32_t tokens = table_->tokens();
  if (to > tokens && tokens % kKvPageTokens != 0)
    wanted += pages.references(table_->page(tokens / kKvPageTokens)) > 1 ? 1 : 0;
  SLUICE_TRY(MakeRoom(wanted, first, end));
  for (uint32_t i = first; i < std::min(end, table_->pages()); ++i) {
    if (!pages.resident(table_->page(i))) SLUICE_TRY(FetchPage(i));
  }
  if (to > tokens) {
    MakeRoomForCopy();
    SLUICE_TRY(table_->Append(to - tokens));
  }
  for (uint32_t i = first; i < end; ++i) pages.SetSaved(table_->page(i), false);
  SLUICE_TRY(FillFrames());
  ShowPages();
  return {};
}

Status Sequence::MakeRoom(uint32_t wanted, uint32_t keep, uint32_t keep_end) {
  while (pool_->pages->free_pages() < wanted && pool_->cache->FreeOne()) {
  }
  if (pool_->spill == nullptr) return {};
  return FreeFrames(wanted, keep, keep_end);
}

// What cannot be had is left to the caller to find.
Status Sequence::FreeFrames(uint32_t frames, uint32_t keep, uint32_t keep_end) {
  KvPagePool& pages = *pool_->pages;
  KvSpill& spill = *pool_->spill;
  while (pages.free_frames() < frames && pool_->cache->FreeOne(/*with_frame=*/true)) {
  }
  if (pages.free_frames() >= frames) return {};
  spill.Touch(table_->ids());
  std::vector<int32_t>& victims = spill.victims();
  victims.clear();
  const uint32_t short_of = frames - pages.free_frames();
  for (uint32_t own = table_->pages(); victims.size() < short_of;) {
    int page = spill.Idle();
    if (page >= 0) {
      spill.Choose(page);
    } else {
      while (own > 0 &&
             ((own - 1 >= keep && own - 1 < keep_end) || !pages.resident(table_->page(own - 1)))) {
        --own;
      }
      if (own == 0) break;
      page = table_->page(--own);
    }
    victims.push_back(page);
  }
  // What is on the disk already need not be written again.
  const auto written = std::partition(victims.begin(), victims.end(),
                                      [&](int32_t page) { return !pages.saved(page); });
  std::sort(victims.begin(), written);
  SLUICE_TRY(spill.Save({victims.begin(), written}));
  for (int32_t page : victims) pages.Evict(page);
  return {};
}

Status Sequence::FetchPage(uint32_t index) {
  const int page = table_->page(index);
  if (!pool_->pages->Fetch(page)) return Status(Code::kFailed, "no frame for a KV page");
  const Status status = pool_->spill->Read(page, pool_->pages->data(page));
  if (!status.ok()) pool_->pages->Evict(page);
  return status;
}

// Frames that are free or belong to timelines at rest are filled with this one's pages: reading
// them once is what the window would do in every step. At least so many that the window holds the
// others.
Status Sequence::FillFrames() {
  KvPagePool& pages = *pool_->pages;
  uint32_t away = 0;
  for (uint32_t i = 0; i < table_->pages(); ++i) away += pages.resident(table_->page(i)) ? 0 : 1;
  for (uint32_t i = 0; away > 0 && i < table_->pages(); ++i) {
    if (pages.resident(table_->page(i))) continue;
    const bool must = away > pool_->spill->window_pages();
    const Status status = FreeFrames(1, 0, table_->pages());
    if (must) SLUICE_TRY(status);
    if (!status.ok() || pages.free_frames() == 0) {
      return must ? Status(Code::kFailed, "the KV window is too small") : Status();
    }
    SLUICE_TRY(FetchPage(i));
    --away;
  }
  return {};
}

void Sequence::ForgetDamaged() {
  if (pool_->spill == nullptr) return;
  const int page = pool_->spill->TakeDamaged();
  if (page >= 0 && pool_->pages->references(page) > 0) pool_->cache->Forget(page);
}

}  // namespace sluice
