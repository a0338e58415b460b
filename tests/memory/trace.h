// Recorded and made-up routing for the cache tests.
//
// Contract: a recorded trace is read from the shared folder; nullopt when it is absent.
#pragma once

#include <stdio.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "memory/policy_replay.h"
#include "tests/test_data.h"

namespace sluice::testing {

struct Trace {
  std::vector<RouteAccess> accesses;
  uint32_t layers = 0, experts = 128;
};

inline std::optional<Trace> LoadTrace(const std::string& name) {
  FILE* file = fopen(test::SharedPath("traces/" + name).c_str(), "r");
  if (file == nullptr) return std::nullopt;
  Trace trace;
  char line[256];
  while (fgets(line, sizeof(line), file) != nullptr) {
    RouteAccess a;
    unsigned turn, phase, slot;
    if (sscanf(line, "%u,%u,%u,%u,%u,%u", &turn, &phase, &a.step, &a.layer, &slot, &a.expert) != 6)
      continue;
    trace.accesses.push_back(a);
    trace.layers = std::max(trace.layers, a.layer + 1);
  }
  fclose(file);
  SortAccesses(&trace.accesses);
  return trace;
}

// Every expert as likely as any other: nothing to learn.
inline Trace UniformTrace(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t tokens,
                          uint32_t seed) {
  std::mt19937 random(seed);
  Trace trace;
  trace.layers = layers;
  trace.experts = experts;
  std::vector<uint32_t> all(experts);
  for (uint32_t i = 0; i < experts; ++i) all[i] = i;
  for (uint32_t step = 0; step < tokens; ++step) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (uint32_t i = 0; i < top_k; ++i) {
        std::swap(all[i], all[i + random() % (experts - i)]);
        trace.accesses.push_back({step, layer, all[i]});
      }
    }
  }
  return trace;
}

}  // namespace sluice::testing
