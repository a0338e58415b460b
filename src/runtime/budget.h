// The automatic budget: what the machine or its cgroup concedes, minus a margin.
//
// Contract: pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/cpu.h"

namespace sluice {

struct BudgetChoice {
  uint64_t bytes = 0;
  std::string reason;  // one phrase for the summary
};

// rss_bytes: what this process holds already (it is part of the budget, and of what is in use).
BudgetChoice AutoBudget(const MemoryStatus& memory, uint64_t rss_bytes);

}  // namespace sluice
