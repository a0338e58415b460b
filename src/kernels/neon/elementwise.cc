#include "kernels/simd/elementwise.h"

#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"

namespace sluice::neon {

void RmsNorm(const float* x, const float* w, float eps, uint32_t n, float* y) {
  RmsNormOf<F32x8>(x, w, eps, n, y);
}

void Rope(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
          const float* cos, const float* sin) {
  RopeOf<F32x8>(x, n_heads, head_dim, dims, adjacent, cos, sin);
}

void SiluMul(const float* gate, const float* up, uint32_t n, float* y) {
  SiluMulOf<F32x8>(gate, up, n, y);
}

void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y) {
  GeluTanhMulOf<F32x8>(gate, up, n, y);
}

void SwigluClampedMul(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                      float* y) {
  SwigluClampedMulOf<F32x8>(gate, up, limit, alpha, n, y);
}

void Add(const float* x, float scale, uint32_t n, float* y) { AddOf<F32x8>(x, scale, n, y); }

void MulSigmoid(const float* gate, uint32_t n, float* y) { MulSigmoidOf<F32x8>(gate, n, y); }

void Softmax(float* x, uint32_t n) { SoftmaxOf<F32x8>(x, n); }

}  // namespace sluice::neon
