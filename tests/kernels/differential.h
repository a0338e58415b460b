// One random or adversarial kernel call on two instruction sets, compared.
//
// Contract: test code only, shared by the fuzz target and a plain test; no gtest. A case is decided
// by its bytes alone (what is missing is drawn from a generator they seed), so every failure
// repeats. Blocks hold any bytes: NaN and Inf scales, subnormals, quants no encoder writes.
//   int8 products, the activation quantiser, the KV store: equal bits, NaN payloads apart
//   float results: within 1e-5 of the largest output (plus the rounding of what was summed, where
//   terms cancel), or not finite on both sides; where a float sum may overflow in one order and not
//   in another, nothing is said
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/ops.h"

namespace sluice::testing {

// Empty when both agree, else what differed.
std::string CheckKernelCase(const Ops& ops, const Ops& reference, std::span<const uint8_t> bytes);

}  // namespace sluice::testing
