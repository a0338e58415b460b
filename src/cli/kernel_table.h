// The result of `bench --kernels` as a table and as JSON.
//
// Contract: pure functions, as in report.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sluice/kernel_bench.h"

namespace sluice::cli {

std::string KernelTable(const KernelBench& bench);
nlohmann::ordered_json KernelJson(const KernelBench& bench);

}  // namespace sluice::cli
