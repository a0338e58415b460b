#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"

namespace sluice::neon {
namespace {

// y[i] = f(a[i], b[i]); the tail runs in a padded vector, so an element's value never depends on n.
template <class F>
inline void Map(const float* a, const float* b, uint32_t n, float* y, F f) {
  uint32_t i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(y + i, f(vld1q_f32(a + i), vld1q_f32(b + i)));
  if (i == n) return;
  float ta[4] = {}, tb[4] = {}, ty[4];
  for (uint32_t j = i; j < n; ++j) {
    ta[j - i] = a[j];
    tb[j - i] = b[j];
  }
  vst1q_f32(ty, f(vld1q_f32(ta), vld1q_f32(tb)));
  for (uint32_t j = i; j < n; ++j) y[j] = ty[j - i];
}

void RopeHalf(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + 4 <= half; j += 4) {
    const float32x4_t a = vld1q_f32(x + j), b = vld1q_f32(x + half + j);
    const float32x4_t c = vld1q_f32(cos + j), s = vld1q_f32(sin + j);
    vst1q_f32(x + j, vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)));
    vst1q_f32(x + half + j, vaddq_f32(vmulq_f32(b, c), vmulq_f32(a, s)));
  }
  for (; j < half; ++j) {
    const float a = x[j], b = x[half + j];
    x[j] = a * cos[j] - b * sin[j];
    x[half + j] = b * cos[j] + a * sin[j];
  }
}

void RopeAdjacent(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + 4 <= half; j += 4) {
    const float32x4x2_t v = vld2q_f32(x + 2 * j);
    const float32x4_t c = vld1q_f32(cos + j), s = vld1q_f32(sin + j);
    float32x4x2_t y;
    y.val[0] = vsubq_f32(vmulq_f32(v.val[0], c), vmulq_f32(v.val[1], s));
    y.val[1] = vaddq_f32(vmulq_f32(v.val[1], c), vmulq_f32(v.val[0], s));
    vst2q_f32(x + 2 * j, y);
  }
  for (; j < half; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1];
    x[2 * j] = a * cos[j] - b * sin[j];
    x[2 * j + 1] = b * cos[j] + a * sin[j];
  }
}

}  // namespace

float SumOfSquares(const float* x, uint32_t n) {
  F8 acc = Zero8();
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) acc = Fuse(acc, LoadF8(x + i), LoadF8(x + i));
  float tail[8] = {};
  for (uint32_t j = i; j < n; ++j) tail[j - i] = x[j];
  return Fold(Fuse(acc, LoadF8(tail), LoadF8(tail)));
}

void RmsNorm(const float* x, const float* w, float eps, uint32_t n, float* y) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / __builtin_sqrtf(mean + eps);
  if (w == nullptr) {
    return Map(x, x, n, y, [=](float32x4_t v, float32x4_t) { return vmulq_n_f32(v, scale); });
  }
  Map(x, w, n, y,
      [=](float32x4_t v, float32x4_t g) { return vmulq_f32(vmulq_n_f32(v, scale), g); });
}

void Rope(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
          const float* cos, const float* sin) {
  for (uint32_t h = 0; h < n_heads; ++h, x += head_dim) {
    if (adjacent) {
      RopeAdjacent(x, dims / 2, cos, sin);
    } else {
      RopeHalf(x, dims / 2, cos, sin);
    }
  }
}

void SiluMul(const float* gate, const float* up, uint32_t n, float* y) {
  Map(gate, up, n, y,
      [](float32x4_t g, float32x4_t u) { return vmulq_f32(vmulq_f32(g, Sigmoid(g)), u); });
}

// 0.5 (1 + tanh u) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y) {
  Map(gate, up, n, y, [](float32x4_t x, float32x4_t u) {
    const float32x4_t cube = vmulq_f32(vmulq_f32(x, x), x);
    const float32x4_t inner = vfmaq_n_f32(x, cube, 0.044715f);
    const float32x4_t twice = vmulq_n_f32(inner, 2 * 0.7978845608028654f);
    return vmulq_f32(vmulq_f32(x, Sigmoid(twice)), u);
  });
}

void SwigluClampedMul(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                      float* y) {
  const float32x4_t most = vdupq_n_f32(limit), least = vdupq_n_f32(-limit);
  Map(gate, up, n, y, [=](float32x4_t g, float32x4_t u) {
    // NaN passes min and max.
    g = vminq_f32(most, g);
    u = vmaxq_f32(least, vminq_f32(most, u));
    const float32x4_t s = Sigmoid(vmulq_n_f32(g, alpha));
    return vmulq_f32(vmulq_f32(g, s), vaddq_f32(u, vdupq_n_f32(1.0f)));
  });
}

void Add(const float* x, float scale, uint32_t n, float* y) {
  Map(x, y, n, y,
      [=](float32x4_t a, float32x4_t b) { return vaddq_f32(b, vmulq_n_f32(a, scale)); });
}

void MulSigmoid(const float* gate, uint32_t n, float* y) {
  Map(gate, y, n, y, [](float32x4_t g, float32x4_t v) { return vmulq_f32(v, Sigmoid(g)); });
}

void Softmax(float* x, uint32_t n) {
  if (n == 0) return;
  float max = x[0];
  for (uint32_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  const float32x4_t m = vdupq_n_f32(max);
  Map(x, x, n, x, [=](float32x4_t v, float32x4_t) { return Exp(vsubq_f32(v, m)); });
  float32x4_t sums = vdupq_n_f32(0);
  uint32_t i = 0;
  for (; i + 4 <= n; i += 4) sums = vaddq_f32(sums, vld1q_f32(x + i));
  float sum = vaddvq_f32(sums);
  for (; i < n; ++i) sum += x[i];
  const float inverse = 1.0f / sum;
  Map(x, x, n, x, [=](float32x4_t v, float32x4_t) { return vmulq_n_f32(v, inverse); });
}

}  // namespace sluice::neon
