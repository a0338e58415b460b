// A recorded expert routing, in the CSV form that BigMoeOnEdge writes ("route_trace v1").
//
// Contract: ParseRouteTrace takes bytes, trusts none of them, and allocates no more than a small
// multiple of their number. Lines that start with '#' carry the model's shape (n_layer, n_expert,
// n_expert_used and one expert_bytes per layer); without them the shape is what the rows span.
// Columns: turn, phase (0 prompt, 1 decode), step, layer, slot (rank), expert, weight, residency,
// expert_bytes; the last two are read past. Every row's layer and expert are below the shape's. The
// first fault ends the parse with file and line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice {

struct RouteRow {
  uint32_t turn = 0, step = 0, layer = 0, rank = 0, expert = 0;
  bool decode = false;
  float weight = 0;
};

struct RouteTrace {
  std::string model, arch;
  uint32_t layers = 0, experts = 0, experts_used = 0;
  std::vector<uint64_t> expert_bytes;  // per layer; 0 where the file does not say
  std::vector<RouteRow> rows;          // in file order
};

// `path` is for error texts.
Result<RouteTrace> ParseRouteTrace(ByteSpan bytes, const std::string& path);

}  // namespace sluice
