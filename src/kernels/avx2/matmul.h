// The AVX2 matrix products by family of weight types; the table's matmul chooses among them.
//
// Contract: as ops.h; each handles rows [row_begin, row_end) of types it names.
#pragma once

#include "kernels/ops.h"

namespace sluice::avx2 {

// 32-element blocks with kQ8x32 activations.
void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
// 256-element blocks with kQ8x256 activations: all of them, and the IQ1, IQ2 and IQ3 types alone.
void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulCodebook(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
// Any type that decodes, with float activations.
void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::avx2
