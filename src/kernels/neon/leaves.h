// The aarch64 leaves.
//
// Contract: as ops.h. The exponential in them is within 2 ulp of the exact one for finite results,
// passes NaN, gives 0 below -87.3 and the largest powers for large arguments.
#pragma once

#include "kernels/ops.h"

namespace sluice::neon {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale, int16_t* sums);
void QuantizeRow(const float* x, uint32_t n, const ActOut& out);
void NormRow(const NormArgs& args);
void GluRow(const GluArgs& args);

void RmsNorm(const float* x, const float* w, float eps, uint32_t n, float* y);
void Rope(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
          const float* cos, const float* sin);
void SiluMul(const float* gate, const float* up, uint32_t n, float* y);
void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y);
void SwigluClampedMul(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                      float* y);
void Add(const float* x, float scale, uint32_t n, float* y);
void MulSigmoid(const float* gate, uint32_t n, float* y);
void Softmax(float* x, uint32_t n);

void KvStore(KvFormat format, bool is_value, const float* x, uint32_t n, uint8_t* row);
void Attention(const AttentionArgs& args);

void DeltaStep(const DeltaStepArgs& args);
void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y);

}  // namespace sluice::neon

namespace sluice::neon_dotprod {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::neon_dotprod

namespace sluice::neon_i8mm {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::neon_i8mm
