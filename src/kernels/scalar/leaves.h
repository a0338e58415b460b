// The scalar leaves: the reference that every other table is held to, and its fallback.
//
// Contract: as ops.h says. Float sums that another instruction set may reorder run here over eight
// lanes (element i in lane i % 8), folded as FoldLanes() does; integer sums are exact everywhere.
#pragma once

#include "kernels/ops.h"

namespace sluice::scalar {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
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

}  // namespace sluice::scalar
