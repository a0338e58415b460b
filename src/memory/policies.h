// The policies behind cache_policy.h, one class each.
//
// Contract: as cache_policy.h; made by MakeCachePolicy only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "memory/cache_policy.h"

namespace sluice {

// A doubly linked list through the slots, most recent first.
class LruPolicy : public CachePolicy {
 public:
  explicit LruPolicy(const CacheShape& shape);
  const char* name() const override { return "lru"; }
  void BeginToken() override {}
  void OnAccess(uint32_t key, int slot) override;
  void OnInsert(uint32_t key, int slot) override;
  void OnRemove(uint32_t key, int slot) override;
  int Victim(FunctionRef<bool(int slot)> evictable) override;

 private:
  void Unlink(int slot);
  void PushFront(int slot);
  struct Link {
    int previous = -1, next = -1;
  };
  std::vector<Link> links_;
  int head_ = -1, tail_ = -1;
};

// One decayed count per key. A score that fades by the same factor for everyone keeps its order, so
// the slots lie in a heap by log(score) - token * log(decay), which changes on access only.
class LfuDecayPolicy : public CachePolicy {
 public:
  explicit LfuDecayPolicy(const CacheShape& shape);
  const char* name() const override { return "lfu-decay"; }
  void BeginToken() override { ++token_; }
  void OnAccess(uint32_t key, int slot) override;
  void OnInsert(uint32_t key, int slot) override;
  void OnRemove(uint32_t key, int slot) override;
  int Victim(FunctionRef<bool(int slot)> evictable) override;

 private:
  struct Rank {
    double priority = 0;
    uint64_t stamp = 0;  // of the last access: the tie-break
    bool operator<(const Rank& other) const {
      return priority != other.priority ? priority < other.priority : stamp < other.stamp;
    }
  };
  const Rank& RankAt(size_t position) const { return ranks_[key_of_slot_[heap_[position]]]; }
  void Place(size_t position, int slot);
  void SiftUp(size_t position);
  void SiftDown(size_t position);

  std::vector<Rank> ranks_;  // by key
  std::vector<uint32_t> key_of_slot_;
  std::vector<int> heap_;         // slots, least rank first
  std::vector<size_t> position_;  // in the heap, by slot
  std::vector<size_t> frontier_;  // scratch of Victim
  uint64_t stamp_ = 0;
  int64_t token_ = 0;
};

class DualDecayPolicy : public CachePolicy {
 public:
  explicit DualDecayPolicy(const CacheShape& shape);
  const char* name() const override { return "dual-decay"; }
  void BeginToken() override { ++token_; }
  void OnAccess(uint32_t key, int slot) override;
  void OnInsert(uint32_t key, int slot) override;
  void OnRemove(uint32_t key, int slot) override;
  int Victim(FunctionRef<bool(int slot)> evictable) override;

 private:
  // Beyond this many tokens a count has faded to under 0.01 of its value and is kept there.
  static constexpr uint32_t kAgeMax = 255;
  static constexpr size_t kCarried = 8;
  struct Count {
    float slow = 0, fast = 0;
    uint32_t token = 0;
    uint32_t stamp = 0;
  };
  uint32_t Age(const Count& count) const {
    const uint32_t age = token_ - count.token;
    return age < kAgeMax ? age : kAgeMax;
  }
  float ValueOf(uint32_t key) const;
  // The least valuable slots seen in one search, least first, each once.
  struct Candidate {
    float value = 0;
    uint32_t stamp = 0;
    int slot = -1;
    bool operator<(const Candidate& other) const {
      return value != other.value ? value < other.value : stamp < other.stamp;
    }
  };
  struct Least {
    std::array<Candidate, kCarried + 1> least;
    size_t count = 0;
    void Offer(const Candidate& candidate);
  };
  void Consider(int slot, FunctionRef<bool(int slot)> evictable, Least* found) const;

  const CacheShape shape_;
  std::array<float, kAgeMax + 1> slow_, fast_;  // decay to the power of the age
  std::vector<float> circle_;                   // the layer factor, by layers still to run
  std::vector<Count> counts_;                   // by key
  std::vector<uint32_t> key_of_slot_;
  // Runners-up of the last search take part in the next one: worth as much as twice the samples.
  std::array<int, kCarried> carried_ = {};
  size_t carried_count_ = 0;
  uint32_t token_ = 0, stamp_ = 0, layer_ = 0;
  uint64_t random_ = 0x9E3779B97F4A7C15u;
};

}  // namespace sluice
