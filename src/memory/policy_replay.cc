#include "memory/policy_replay.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "memory/expert_cache.h"

namespace sluice {

void SortAccesses(std::vector<RouteAccess>* accesses) {
  std::stable_sort(accesses->begin(), accesses->end(),
                   [](const RouteAccess& a, const RouteAccess& b) {
                     return std::tie(a.step, a.layer) < std::tie(b.step, b.layer);
                   });
}

Result<ReplayResult> ReplayPolicy(const std::vector<RouteAccess>& accesses, const CacheShape& shape,
                                  std::string_view policy) {
  if (policy == "belady") return ReplayBelady(accesses, shape);
  auto made = MakeCachePolicy(policy, shape);
  if (made == nullptr) {
    return Status(Code::kUsage, "no such cache policy", std::string(policy),
                  "use dual-decay, lfu-decay, lru or belady");
  }
  ExpertCache cache(shape, std::move(made));
  std::vector<int> pinned;
  std::vector<uint32_t> missing;
  for (size_t i = 0; i < accesses.size();) {
    if (i == 0 || accesses[i].step != accesses[i - 1].step) cache.BeginToken();
    pinned.clear();
    missing.clear();
    size_t end = i;
    for (; end < accesses.size() && accesses[end].step == accesses[i].step &&
           accesses[end].layer == accesses[i].layer;
         ++end) {
      const uint32_t key = cache.Key(accesses[end].layer, accesses[end].expert);
      const int slot = cache.Lookup(key);
      if (slot < 0) {
        missing.push_back(key);
      } else {
        cache.Pin(slot);
        pinned.push_back(slot);
      }
    }
    for (uint32_t key : missing) {
      if (cache.Find(key) >= 0) continue;  // asked for twice in one group
      const int slot = cache.Reserve(key);
      if (slot < 0) continue;  // fewer slots than the group: read past the cache
      cache.MarkReady(slot);
      pinned.push_back(slot);
    }
    for (int slot : pinned) cache.Unpin(slot);
    i = end;
  }
  return ReplayResult{cache.stats().lookups, cache.stats().hits, cache.stats().evictions};
}

ReplayResult ReplayBelady(const std::vector<RouteAccess>& accesses, const CacheShape& shape) {
  constexpr size_t kNever = SIZE_MAX;
  std::vector<size_t> next_use(accesses.size()), seen(shape.keys(), kNever);
  auto key_at = [&](size_t i) { return accesses[i].layer * shape.experts + accesses[i].expert; };
  for (size_t i = accesses.size(); i-- > 0;) {
    next_use[i] = seen[key_at(i)];
    seen[key_at(i)] = i;
  }
  ReplayResult result;
  std::set<std::pair<size_t, uint32_t>> resident;  // by next use
  std::vector<size_t> stored(shape.keys(), 0);     // the next use a resident key is filed under
  std::vector<bool> in(shape.keys(), false);
  for (size_t i = 0; i < accesses.size(); ++i) {
    const uint32_t key = key_at(i);
    ++result.accesses;
    if (in[key]) {
      ++result.hits;
      resident.erase({stored[key], key});
    } else if (resident.size() >= shape.slots) {
      if (resident.empty() || std::prev(resident.end())->first <= next_use[i]) continue;
      in[std::prev(resident.end())->second] = false;
      resident.erase(std::prev(resident.end()));
      ++result.evictions;
    }
    in[key] = true;
    stored[key] = next_use[i];
    resident.insert({next_use[i], key});
  }
  return result;
}

}  // namespace sluice
