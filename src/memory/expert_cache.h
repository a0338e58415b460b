// The expert cache: which expert lies in which slot. Knows no files and moves no bytes.
//
// Contract: owned by one thread. Key = layer * experts per layer + expert. A slot is free, filling
// (its bytes are on the way) or ready. Invariants: a key has at most one slot; a slot that is
// filling or pinned is never evicted, even if that means that Reserve answers -1 (the caller waits,
// or reads past the cache); protected keys go only when nothing else can. Every call costs the same
// with 64 slots as with 16,384. No allocation after construction.
//
// One layer of one token: Lookup each expert of the router, Pin those found, Reserve a slot for
// each missing one (it comes back pinned), read, MarkReady, compute, Unpin. BeginToken once per
// step, before its first layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/cache_policy.h"

namespace sluice {

class ExpertCache {
 public:
  struct Stats {
    uint64_t lookups = 0;
    uint64_t hits = 0;          // ready when asked for
    uint64_t hits_filling = 0;  // on the way when asked for
    uint64_t inserts = 0, evictions = 0;
    uint64_t refused = 0;  // Reserve that found nothing to evict
    double hit_rate() const {
      return lookups == 0 ? 0
                          : static_cast<double>(hits + hits_filling) / static_cast<double>(lookups);
    }
  };

  // policy: one of CachePolicyNames(), for the same shape.
  ExpertCache(const CacheShape& shape, std::unique_ptr<CachePolicy> policy);

  const CacheShape& shape() const { return shape_; }
  const CachePolicy& policy() const { return *policy_; }
  uint32_t Key(uint32_t layer, uint32_t expert) const { return layer * shape_.experts + expert; }

  void BeginToken() { policy_->BeginToken(); }

  // The router chose `key`: counts it and returns its slot (ready or filling), or -1.
  int Lookup(uint32_t key);
  // The same without counting: for look-ahead and tests.
  int Find(uint32_t key) const { return slot_of_key_[key]; }

  // A slot for `key`, filling and pinned once; evicts if need be. -1 when every slot is filling or
  // pinned. `key` must not have a slot yet.
  int Reserve(uint32_t key);
  void MarkReady(int slot);
  // The read failed or was cancelled: the slot is free again. It must be filling, with its one pin.
  void Abandon(int slot);

  // Forgets every expert that is ready and unpinned. What the policy counted stays.
  void Clear();

  void Pin(int slot);
  void Unpin(int slot);

  // Keys that the look-ahead named; replaces the set named before. They need not be resident.
  void Protect(std::span<const uint32_t> keys);

  bool ready(int slot) const { return slots_[static_cast<size_t>(slot)].state == State::kReady; }
  uint32_t pins(int slot) const { return slots_[static_cast<size_t>(slot)].pins; }
  uint32_t resident() const { return resident_; }  // filling or ready
  const Stats& stats() const { return stats_; }

 private:
  enum class State : uint8_t { kFree, kFilling, kReady };
  struct Slot {
    uint32_t key = UINT32_MAX;
    uint32_t pins = 0;
    State state = State::kFree;
  };
  void Release(int slot);

  const CacheShape shape_;
  const std::unique_ptr<CachePolicy> policy_;
  std::vector<int32_t> slot_of_key_;
  std::vector<Slot> slots_;
  std::vector<int32_t> free_;
  std::vector<uint32_t> protected_in_;  // by key: the epoch that protects it
  uint32_t epoch_ = 1;
  uint32_t resident_ = 0;
  Stats stats_;
};

}  // namespace sluice
