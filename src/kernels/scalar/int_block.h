// One quantised weight block taken apart into small integers: what the int8 dot products mean.
//
// Contract: pure. For every quantised type the product of a block with int8 activations x (scale
// dx) is
//   dx * (d * isum + m * imin)        with exact 32-bit integers
//   isum = sum over groups g of 16: s[g] * sum_j q[16 g + j] * x[16 g + j]
//   imin = sum over groups g of 16: n[g] * sum_j x[16 g + j]
// and out[t][r] adds these block by block, in order, in float32 with separate multiply and add,
// starting from zero. All instruction sets follow it to the letter, so the int8 path gives the same
// bits on each. Legacy types have 2 groups per block and s = n = 1.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace sluice::scalar {

struct IntBlock {
  int8_t q[256];
  int16_t s[16];
  int16_t n[16];
  float d = 0, m = 0;  // m is -dmin for the K types
  bool has_min = false;
};

// True for the types that have an int8 path.
bool HasIntPath(WeightType type);

// Reads one block (32 or 256 elements) of a type with an int8 path.
void ReadIntBlock(WeightType type, const uint8_t* block, IntBlock* out);

}  // namespace sluice::scalar
