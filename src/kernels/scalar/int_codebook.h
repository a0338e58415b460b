// The codebook types as small integers (int_block.h): grid values with their signs, odd scales.
//
// Contract: pure. The formats' scales are fractions: IQ2 (s + 1/2) / 4, IQ3_XXS (s + 1/2) / 2,
// IQ1's grid is shifted by an eighth. Here the integer scale is 2 s + 1, IQ1's quants are 8 * grid
// +- 1, and the power of two that remains goes into d, which is exact. Where the build has no grids
// the types have no int8 path.
#pragma once

#include "kernels/scalar/int_block.h"

namespace sluice::scalar {

// Whether `type` is a codebook type whose grid this build holds.
bool HasCodebook(WeightType type);

// Reads one block of 256 elements of such a type.
void ReadCodebook(WeightType type, const uint8_t* block, IntBlock* out);

}  // namespace sluice::scalar
