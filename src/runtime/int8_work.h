// How much int8 multiplying a token is, and how fast this machine multiplies at best.
//
// Contract: Int8WorkOf is a pure function; it counts two operations per quantised weight that a
// token passes through and per int8 plane of its activations, nothing for float weights, attention
// or recurrences. MeasureOperations runs one of the loops of kernels/peak.h on every thread of a
// pool that is idle, for about `seconds`, and returns operations per second of the best run, 0 for
// no loop: a ceiling for the same instruction set, nothing is computed with it.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "model/model_map.h"

namespace sluice {

struct Int8Work {
  uint64_t per_token = 0;   // of the layers, routed experts as many as are used
  uint64_t per_logits = 0;  // of the head: a prompt needs it once
};

// planes: 1 or 2; 0 where activations stay floats.
Int8Work Int8WorkOf(const ModelMap& map, uint32_t planes);

double MeasureOperations(uint64_t (*loop)(uint64_t rounds), ThreadPool* pool, double seconds);

}  // namespace sluice
