#include <cmath>

#include "kernels/scalar/lanes.h"
#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void RmsNorm(const float* x, const float* w, float eps, uint32_t n, float* y) {
  float lanes[8] = {};
  DotLanes(x, x, n, lanes);
  const float mean = FoldLanes(lanes) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  if (w == nullptr) {
    for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * scale;
  } else {
    for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * scale * w[i];
  }
}

void Rope(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
          const float* cos, const float* sin) {
  const uint32_t half = dims / 2;
  for (uint32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (uint32_t j = 0; j < half; ++j) {
      float& a = x[adjacent ? 2 * j : j];
      float& b = x[adjacent ? 2 * j + 1 : j + half];
      const float a0 = a, b0 = b;
      a = a0 * cos[j] - b0 * sin[j];
      b = b0 * cos[j] + a0 * sin[j];
    }
  }
}

void SiluMul(const float* gate, const float* up, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
}

// 0.5 (1 + tanh u) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    y[i] = x * Sigmoid(2.0f * u) * up[i];
  }
}

void SwigluClampedMul(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                      float* y) {
  for (uint32_t i = 0; i < n; ++i) {
    // Written so that a NaN passes through the clamps.
    const float g = gate[i] > limit ? limit : gate[i];
    const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
    y[i] = g * Sigmoid(alpha * g) * (u + 1.0f);
  }
}

void Add(const float* x, float scale, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = y[i] + scale * x[i];
}

void MulSigmoid(const float* gate, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = y[i] * Sigmoid(gate[i]);
}

void Softmax(float* x, uint32_t n) {
  if (n == 0) return;
  float max = x[0];
  for (uint32_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  float lanes[8] = {};
  for (uint32_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - max);
    lanes[i % 8] += x[i];
  }
  const float inverse = 1.0f / FoldLanes(lanes);
  for (uint32_t i = 0; i < n; ++i) x[i] *= inverse;
}

}  // namespace sluice::scalar
