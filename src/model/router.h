// What a router's logits mean, for whoever guesses with them; the routing itself is Route in
// forward.h.
//
// Contract: pure, thread-safe.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "model/config.h"
#include "model/weights.h"

namespace sluice {

// The bias that is added to the router's logits; null where there is none, or where it only steers
// the choice.
const float* RouterLogitBias(const MoeConfig& m, const LayerWeights& w);
// The experts that a row of logits (overwritten) chooses, best first: index and weight [used].
void ChooseExperts(const MoeConfig& m, const Ops& ops, const LayerWeights& w, float* logits,
                   uint32_t* index, float* weight);

}  // namespace sluice
