// What people and scripts read at the end: the byte table, the summary, and the same as JSON.
//
// Contract: pure functions of a Plan and Stats. JSON names and units are the stable contract of the
// command line; numbers that do not exist are 0, never NaN. Tables are plain text, columns aligned,
// no colour.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sluice/plan.h"
#include "sluice/stats.h"

namespace sluice::cli {

// The memory table of the plan, one line per tag, and the predicted rate.
std::string PlanTable(const Plan& plan);
nlohmann::ordered_json PlanJson(const Plan& plan);

// The summary after a run, the memory table included.
std::string StatsTable(const Plan& plan, const Stats& stats);
nlohmann::ordered_json StatsJson(const Stats& stats);

// One JSON text on one line; broken UTF-8 becomes U+FFFD.
std::string Dump(const nlohmann::ordered_json& json);

}  // namespace sluice::cli
