// The AVX-512 matrix products.
//
// Contract: as ops.h; each handles rows [row_begin, row_end). With int8 activations: the bits of
// every other set; types without an own form, and ranges too short for a tile of sixteen rows, go
// to AVX2.
#pragma once

#include "kernels/ops.h"

namespace sluice::avx512 {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
// Any type that decodes, with float activations.
void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::avx512
