// Replays a recorded routing over a cache: what a policy would have hit.
//
// Contract: pure functions; every size from the caller is trusted (the trace's parser checked it).
// Order is that of decoding: by step, then layer, whatever the order of the rows. All experts of
// one layer of one step are asked for together; those missing take slots, and none of the group
// evicts another. Cold start.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory/cache_policy.h"

namespace sluice {

struct RouteAccess {
  uint32_t step = 0, layer = 0, expert = 0;
};

struct ReplayResult {
  uint64_t accesses = 0, hits = 0, evictions = 0;
  double hit_rate() const {
    return accesses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(accesses);
  }
};

// The order of decoding, in place.
void SortAccesses(std::vector<RouteAccess>* accesses);

// `accesses` sorted. kUsage for a policy that does not exist; "belady" is the bound below.
Result<ReplayResult> ReplayPolicy(const std::vector<RouteAccess>& accesses, const CacheShape& shape,
                                  std::string_view policy);

// The optimum with knowledge of the future: the key needed last stays out, or is not let in at all.
ReplayResult ReplayBelady(const std::vector<RouteAccess>& accesses, const CacheShape& shape);

}  // namespace sluice
