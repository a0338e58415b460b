// The AVX-512 leaves other than the matrix products.
//
// Contract: as ops.h; the exponential as in avx2/leaves.h. RmsNorm, Rope and the element-wise
// leaves give AVX2's bits; Attention, Softmax and MatmulFloat sum over sixteen lanes.
#pragma once

#include "kernels/avx2/leaves.h"

namespace sluice::avx512 {

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

void Attention(const AttentionArgs& args);

void DeltaStep(const DeltaStepArgs& args);
void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y);

// The table of a set that has products of its own and these leaves for all else; AVX2's for what is
// not above. Evaluated by the compiler: see avx2/leaves.h.
consteval Ops TableOf(const char* isa, decltype(Ops::matmul) matmul) {
  Ops ops = avx2::TableOf(isa, matmul);
  ops.quantize = Quantize;
  ops.quantize_row = QuantizeRow;
  ops.norm_row = NormRow;
  ops.glu_row = GluRow;
  ops.rms_norm = RmsNorm;
  ops.rope = Rope;
  ops.silu_mul = SiluMul;
  ops.gelu_tanh_mul = GeluTanhMul;
  ops.swiglu_clamped_mul = SwigluClampedMul;
  ops.add = Add;
  ops.mul_sigmoid = MulSigmoid;
  ops.softmax = Softmax;
  ops.attention = Attention;
  ops.delta_step = DeltaStep;
  ops.conv_step = ConvStep;
  return ops;
}

}  // namespace sluice::avx512
