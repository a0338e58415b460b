// Recorded expert routing, replayed over a cache that does not exist.
//
// Contract: SimulateTrace is pure apart from reading the file; cold start, the order of decoding.
// Every policy the engine offers can be named, and "belady", the optimum that knows the future.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/status.h"

namespace sluice {

struct SimulationRow {
  std::string policy;
  uint32_t slots = 0;
  double slots_per_layer = 0;
  double hit_rate = 0, decode_hit_rate = 0;  // all accesses; those of the answer's tokens
  double bytes_per_token = 0;  // read from disk, where the trace knows the size of an expert
};

struct Simulation {
  std::string model;
  uint32_t layers = 0, experts = 0, experts_used = 0, steps = 0;
  uint64_t accesses = 0;
  std::vector<SimulationRow> rows;  // by slots, then policy
};

// slots empty: 150, 300, 600, 900, 1200 and 1500; policies empty: all of them.
Result<Simulation> SimulateTrace(const std::string& csv_path, std::vector<uint32_t> slots,
                                 std::vector<std::string> policies);

}  // namespace sluice
