// The aarch64 leaves; what is not here runs the scalar ones, which this architecture's compiler
// vectorises.
//
// Contract: as ops.h.
#pragma once

#include "kernels/ops.h"

namespace sluice::neon {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale, int16_t* sums);

}  // namespace sluice::neon

namespace sluice::neon_dotprod {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::neon_dotprod
