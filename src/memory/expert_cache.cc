#include "memory/expert_cache.h"

#include <cassert>
#include <utility>

#include "memory/policies.h"

namespace sluice {

std::unique_ptr<CachePolicy> MakeCachePolicy(std::string_view name, const CacheShape& shape) {
  if (name == "lru") return std::make_unique<LruPolicy>(shape);
  if (name == "lfu-decay") return std::make_unique<LfuDecayPolicy>(shape);
  if (name == "dual-decay") return std::make_unique<DualDecayPolicy>(shape);
  return nullptr;
}

const std::vector<const char*>& CachePolicyNames() {
  static const std::vector<const char*> names = {"dual-decay", "lfu-decay", "lru"};
  return names;
}

uint64_t CacheBookkeepingBytes(const CacheShape& shape) {
  // Per key: slot, epoch, counts; per slot: state, free list, the policy's links or heap.
  return uint64_t{shape.keys()} * (4 + 4 + 16) + uint64_t{shape.slots} * (12 + 4 + 4 + 4 + 8 + 8) +
         uint64_t{shape.layers} * 4 + 4096;
}

ExpertCache::ExpertCache(const CacheShape& shape, std::unique_ptr<CachePolicy> policy)
    : shape_(shape),
      policy_(std::move(policy)),
      slot_of_key_(shape.keys(), -1),
      slots_(shape.slots),
      protected_in_(shape.keys(), 0) {
  free_.reserve(shape.slots);
  for (uint32_t slot = shape.slots; slot-- > 0;) free_.push_back(static_cast<int32_t>(slot));
}

int ExpertCache::Lookup(uint32_t key) {
  const int slot = slot_of_key_[key];
  ++stats_.lookups;
  if (slot >= 0) ++(ready(slot) ? stats_.hits : stats_.hits_filling);
  policy_->OnAccess(key, slot);
  return slot;
}

int ExpertCache::Reserve(uint32_t key) {
  assert(slot_of_key_[key] < 0);
  int slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    const auto evictable = [this](int s) {
      const Slot& candidate = slots_[static_cast<size_t>(s)];
      return candidate.state == State::kReady && candidate.pins == 0;
    };
    slot = policy_->Victim([&](int s) {
      return evictable(s) && protected_in_[slots_[static_cast<size_t>(s)].key] != epoch_;
    });
    if (slot < 0) slot = policy_->Victim(evictable);
    if (slot < 0) {
      ++stats_.refused;
      return -1;
    }
    Release(slot);
    ++stats_.evictions;
  }
  slots_[static_cast<size_t>(slot)] = {key, 1, State::kFilling};
  slot_of_key_[key] = slot;
  ++resident_;
  ++stats_.inserts;
  policy_->OnInsert(key, slot);
  return slot;
}

void ExpertCache::Release(int slot) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  policy_->OnRemove(s.key, slot);
  slot_of_key_[s.key] = -1;
  s = Slot();
  --resident_;
}

void ExpertCache::MarkReady(int slot) {
  assert(slots_[static_cast<size_t>(slot)].state == State::kFilling);
  slots_[static_cast<size_t>(slot)].state = State::kReady;
}

void ExpertCache::Abandon(int slot) {
  assert(slots_[static_cast<size_t>(slot)].state == State::kFilling && pins(slot) == 1);
  Release(slot);
  free_.push_back(slot);
}

void ExpertCache::Clear() {
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    if (!ready(slot) || pins(slot) > 0) continue;
    Release(slot);
    free_.push_back(slot);
  }
}

void ExpertCache::Pin(int slot) { ++slots_[static_cast<size_t>(slot)].pins; }

void ExpertCache::Unpin(int slot) {
  assert(pins(slot) > 0);
  --slots_[static_cast<size_t>(slot)].pins;
}

void ExpertCache::Protect(std::span<const uint32_t> keys) {
  ++epoch_;
  for (uint32_t key : keys) protected_in_[key] = epoch_;
}

}  // namespace sluice
