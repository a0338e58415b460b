#include "memory/policies.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr uint32_t kNoKey = UINT32_MAX;
constexpr double kLfuDecay = 0.9;  // per token: half-life 6.6 tokens
constexpr float kSlowDecay = 0.95f, kFastDecay = 0.6f, kFastWeight = 2.0f, kCircleWeight = 0.5f;
constexpr int kSamples = 64;

}  // namespace

LruPolicy::LruPolicy(const CacheShape& shape) : links_(shape.slots) {}

void LruPolicy::Unlink(int slot) {
  const Link& link = links_[static_cast<size_t>(slot)];
  (link.previous < 0 ? head_ : links_[static_cast<size_t>(link.previous)].next) = link.next;
  (link.next < 0 ? tail_ : links_[static_cast<size_t>(link.next)].previous) = link.previous;
}

void LruPolicy::PushFront(int slot) {
  links_[static_cast<size_t>(slot)] = {-1, head_};
  (head_ < 0 ? tail_ : links_[static_cast<size_t>(head_)].previous) = slot;
  head_ = slot;
}

void LruPolicy::OnAccess(uint32_t, int slot) {
  if (slot < 0) return;
  Unlink(slot);
  PushFront(slot);
}

void LruPolicy::OnInsert(uint32_t, int slot) { PushFront(slot); }
void LruPolicy::OnRemove(uint32_t, int slot) { Unlink(slot); }

int LruPolicy::Victim(FunctionRef<bool(int slot)> evictable) {
  int slot = tail_;
  while (slot >= 0 && !evictable(slot)) slot = links_[static_cast<size_t>(slot)].previous;
  return slot;
}

LfuDecayPolicy::LfuDecayPolicy(const CacheShape& shape)
    : ranks_(shape.keys(), Rank{-1e300, 0}),
      key_of_slot_(shape.slots, kNoKey),
      position_(shape.slots) {
  heap_.reserve(shape.slots);
  frontier_.reserve(shape.slots);
}

void LfuDecayPolicy::Place(size_t position, int slot) {
  heap_[position] = slot;
  position_[static_cast<size_t>(slot)] = position;
}

void LfuDecayPolicy::SiftUp(size_t position) {
  const int slot = heap_[position];
  const Rank& rank = ranks_[key_of_slot_[static_cast<size_t>(slot)]];
  while (position > 0 && rank < RankAt((position - 1) / 2)) {
    Place(position, heap_[(position - 1) / 2]);
    position = (position - 1) / 2;
  }
  Place(position, slot);
}

void LfuDecayPolicy::SiftDown(size_t position) {
  const int slot = heap_[position];
  const Rank& rank = ranks_[key_of_slot_[static_cast<size_t>(slot)]];
  while (true) {
    size_t child = 2 * position + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && RankAt(child + 1) < RankAt(child)) ++child;
    if (!(RankAt(child) < rank)) break;
    Place(position, heap_[child]);
    position = child;
  }
  Place(position, slot);
}

void LfuDecayPolicy::OnAccess(uint32_t key, int slot) {
  Rank& rank = ranks_[key];
  const double faded_by = static_cast<double>(token_) * -std::log(kLfuDecay);
  rank.priority = faded_by + std::log1p(std::exp(rank.priority - faded_by));
  rank.stamp = ++stamp_;
  if (slot >= 0) SiftDown(position_[static_cast<size_t>(slot)]);  // an access never lowers a rank
}

void LfuDecayPolicy::OnInsert(uint32_t key, int slot) {
  key_of_slot_[static_cast<size_t>(slot)] = key;
  heap_.push_back(slot);
  SiftUp(heap_.size() - 1);
}

void LfuDecayPolicy::OnRemove(uint32_t, int slot) {
  const size_t hole = position_[static_cast<size_t>(slot)];
  const int last = heap_.back();
  heap_.pop_back();
  if (last == slot) return;
  Place(hole, last);
  SiftUp(hole);
  SiftDown(position_[static_cast<size_t>(last)]);
}

int LfuDecayPolicy::Victim(FunctionRef<bool(int slot)> evictable) {
  // Best first through the heap: as many steps as there are better slots that must stay.
  frontier_.clear();
  const auto later = [this](size_t a, size_t b) { return RankAt(b) < RankAt(a); };
  if (!heap_.empty()) frontier_.push_back(0);
  while (!frontier_.empty()) {
    std::pop_heap(frontier_.begin(), frontier_.end(), later);
    const size_t position = frontier_.back();
    frontier_.pop_back();
    if (evictable(heap_[position])) return heap_[position];
    for (size_t child : {2 * position + 1, 2 * position + 2}) {
      if (child >= heap_.size()) continue;
      frontier_.push_back(child);
      std::push_heap(frontier_.begin(), frontier_.end(), later);
    }
  }
  return -1;
}

DualDecayPolicy::DualDecayPolicy(const CacheShape& shape)
    : shape_(shape),
      circle_(shape.layers),
      counts_(shape.keys()),
      key_of_slot_(shape.slots, kNoKey) {
  slow_[0] = fast_[0] = 1.0f;
  for (uint32_t age = 1; age <= kAgeMax; ++age) {
    slow_[age] = slow_[age - 1] * kSlowDecay;
    fast_[age] = fast_[age - 1] * kFastDecay;
  }
  for (uint32_t ahead = 0; ahead < shape.layers; ++ahead) {
    // ahead = 0 is the layer that runs now: it comes again after a whole circle.
    const uint32_t distance = ahead == 0 ? shape.layers : ahead;
    circle_[ahead] = 1.0f + kCircleWeight * (1.0f - static_cast<float>(distance) /
                                                        static_cast<float>(shape.layers));
  }
}

void DualDecayPolicy::OnAccess(uint32_t key, int) {
  Count& count = counts_[key];
  const uint32_t age = Age(count);
  count.slow = count.slow * slow_[age] + 1.0f;
  count.fast = count.fast * fast_[age] + 1.0f;
  count.token = token_;
  count.stamp = ++stamp_;
  layer_ = key / shape_.experts;
}

void DualDecayPolicy::OnInsert(uint32_t key, int slot) {
  key_of_slot_[static_cast<size_t>(slot)] = key;
}
void DualDecayPolicy::OnRemove(uint32_t, int slot) {
  key_of_slot_[static_cast<size_t>(slot)] = kNoKey;
}

float DualDecayPolicy::ValueOf(uint32_t key) const {
  const Count& count = counts_[key];
  const uint32_t age = Age(count);
  const uint32_t layer = key / shape_.experts;
  const uint32_t ahead = layer >= layer_ ? layer - layer_ : layer + shape_.layers - layer_;
  return (count.slow * slow_[age] + kFastWeight * count.fast * fast_[age]) * circle_[ahead];
}

void DualDecayPolicy::Least::Offer(const Candidate& candidate) {
  if (count == least.size() && !(candidate < least[count - 1])) return;
  for (size_t i = 0; i < count; ++i) {
    if (least[i].slot == candidate.slot) return;
  }
  size_t at = count < least.size() ? count++ : count - 1;
  for (; at > 0 && candidate < least[at - 1]; --at) least[at] = least[at - 1];
  least[at] = candidate;
}

void DualDecayPolicy::Consider(int slot, FunctionRef<bool(int slot)> evictable,
                               Least* found) const {
  const uint32_t key = key_of_slot_[static_cast<size_t>(slot)];
  if (key == kNoKey || !evictable(slot)) return;
  found->Offer({ValueOf(key), counts_[key].stamp, slot});
}

int DualDecayPolicy::Victim(FunctionRef<bool(int slot)> evictable) {
  Least found;
  if (shape_.slots > 2 * kSamples) {
    for (size_t i = 0; i < carried_count_; ++i) Consider(carried_[i], evictable, &found);
    for (int i = 0; i < kSamples; ++i) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      Consider(static_cast<int>((random_ >> 32) * shape_.slots >> 32), evictable, &found);
    }
  }
  if (found.count == 0) {  // a small cache, or one in which nearly everything must stay
    for (uint32_t slot = 0; slot < shape_.slots; ++slot)
      Consider(static_cast<int>(slot), evictable, &found);
  }
  if (found.count == 0) return -1;
  carried_count_ = found.count - 1;
  for (size_t i = 0; i < carried_count_; ++i) carried_[i] = found.least[i + 1].slot;
  return found.least[0].slot;
}

}  // namespace sluice
