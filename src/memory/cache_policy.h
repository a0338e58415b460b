// Which expert leaves when another needs its slot.
//
// Contract: one small interface; not thread-safe, deterministic, no allocation after construction,
// cost per call independent of the number of slots (a logarithm for lfu-decay). A policy knows keys
// (layer times experts per layer plus expert) and slots; whether a slot may be evicted at all is
// the cache's question, asked through `evictable`. Counts belong to keys, not to slots: they
// survive eviction.
//
// dual-decay, the default: value = slow + 2 fast, two frequencies that fade by 0.95 and 0.6 per
// token (half lives of 13.5 and 1.4 tokens), times 1 + 0.5 (1 - d/L), d = layers until the key's
// layer runs next. The fast term sees what the current text is about, the slow one the model's
// habits, the factor that layers run in a circle: what just ran is needed last. The least of 64
// sampled slots goes, ties to the longer unused. On three recorded traces 1 to 4 points above one
// decay of 0.9, up to 25 above LRU (docs/expert-cache.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace sluice {

struct CacheShape {
  uint32_t layers = 0;
  uint32_t experts = 0;  // per layer
  uint32_t slots = 0;
  uint32_t keys() const { return layers * experts; }
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  virtual const char* name() const = 0;
  virtual void BeginToken() = 0;
  // The router asked for `key`; slot is where it lies, -1 when it does not.
  virtual void OnAccess(uint32_t key, int slot) = 0;
  virtual void OnInsert(uint32_t key, int slot) = 0;
  virtual void OnRemove(uint32_t key, int slot) = 0;
  // The slot to empty, among the filled ones for which evictable is true; -1 when there is none.
  virtual int Victim(FunctionRef<bool(int slot)> evictable) = 0;
};

constexpr const char* kDefaultCachePolicy = "dual-decay";

// "lru", "lfu-decay" (0.9 per token, exact), "dual-decay"; nullptr for another name.
std::unique_ptr<CachePolicy> MakeCachePolicy(std::string_view name, const CacheShape& shape);
const std::vector<const char*>& CachePolicyNames();
// Bytes that a policy and its cache allocate, an upper bound for the plan.
uint64_t CacheBookkeepingBytes(const CacheShape& shape);

}  // namespace sluice
