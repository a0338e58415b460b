#include "runtime/budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace sluice {
namespace {

// The system and its page cache want air; a tenth, at least 64 MiB of the machine's memory, at most
// 2 GiB.
constexpr uint64_t kMarginShare = 10;
constexpr uint64_t kMarginMin = 64 * kMiB, kMarginMax = 2 * kGiB;
// Inside a cgroup only this process and its page cache count.
constexpr uint64_t kCgroupMarginMin = 8 * kMiB;

}  // namespace

BudgetChoice AutoBudget(const MemoryStatus& memory, uint64_t rss_bytes) {
  const uint64_t available = memory.available_bytes + rss_bytes;
  const bool cgroup = memory.cgroup_limit_bytes > 0 && memory.cgroup_limit_bytes < available;
  const uint64_t conceded = cgroup ? memory.cgroup_limit_bytes : available;
  const uint64_t margin = std::min(
      std::max(conceded / kMarginShare, cgroup ? kCgroupMarginMin : kMarginMin), kMarginMax);
  const uint64_t bytes = conceded > margin ? conceded - margin : 0;
  return {bytes,
          fmt::format("{} {} minus a margin of {}", cgroup ? "cgroup limit" : "available memory",
                      FormatBytes(conceded), FormatBytes(margin))};
}

}  // namespace sluice
