// Element-wise operations, the norm, rope and softmax over a vector type.
//
// Contract: as ops.h. A tail runs in a padded vector, so an element's value never depends on n. The
// norm's sum of squares has one order for 8 and 16 lanes. V is a vector type (rows.h) that also has
//   TurnPairs(x, cos, sin)  kLanes / 2 pairs of neighbours: a cos - b sin, b cos + a sin, in place
// Unnamed namespace: see tiles.h.
#pragma once

#include "kernels/ops.h"
#include "kernels/simd/exp.h"

namespace sluice {
namespace {

// y[i] = f(a[i], b[i]).
template <class V, class F>
inline void Map(const float* a, const float* b, uint32_t n, float* y, F f) {
  uint32_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::Store(y + i, f(V::Load(a + i), V::Load(b + i)));
  if (i == n) return;
  float ta[V::kLanes] = {}, tb[V::kLanes] = {}, ty[V::kLanes];
  for (uint32_t j = i; j < n; ++j) {
    ta[j - i] = a[j];
    tb[j - i] = b[j];
  }
  V::Store(ty, f(V::Load(ta), V::Load(tb)));
  for (uint32_t j = i; j < n; ++j) y[j] = ty[j - i];
}

// Element i in lane i % 16, whatever the vectors; then the tail, one by one.
template <class V>
inline float SumOfSquares(const float* x, uint32_t n) {
  constexpr uint32_t kParts = 16 / V::kLanes;
  typename V::Vec acc[kParts];
  for (typename V::Vec& part : acc) part = V::Zero();
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (uint32_t j = 0; j < kParts; ++j) {
      const typename V::Vec v = V::Load(x + i + j * V::kLanes);
      acc[j] = V::Fma(v, v, acc[j]);
    }
  }
  float sum = V::Sum(kParts == 1 ? acc[0] : V::Add(acc[0], acc[kParts - 1]));
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

template <class V>
void RmsNormOf(const float* x, const float* w, float eps, uint32_t n, float* y) {
  const float mean = SumOfSquares<V>(x, n) / static_cast<float>(n);
  const float scale = 1.0f / __builtin_sqrtf(mean + eps);
  const typename V::Vec s = V::Same(scale);
  if (w == nullptr) return Map<V>(x, x, n, y, [=](auto v, auto) { return V::Mul(v, s); });
  Map<V>(x, w, n, y, [=](auto v, auto g) { return V::Mul(V::Mul(v, s), g); });
}

template <class V>
inline void RopeHalf(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + V::kLanes <= half; j += V::kLanes) {
    const typename V::Vec a = V::Load(x + j), b = V::Load(x + half + j);
    const typename V::Vec c = V::Load(cos + j), s = V::Load(sin + j);
    V::Store(x + j, V::Sub(V::Mul(a, c), V::Mul(b, s)));
    V::Store(x + half + j, V::Add(V::Mul(b, c), V::Mul(a, s)));
  }
  for (; j < half; ++j) {
    const float a = x[j], b = x[half + j];
    x[j] = a * cos[j] - b * sin[j];
    x[half + j] = b * cos[j] + a * sin[j];
  }
}

template <class V>
inline void RopeAdjacent(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + V::kLanes / 2 <= half; j += V::kLanes / 2) V::TurnPairs(x + 2 * j, cos + j, sin + j);
  for (; j < half; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1];
    x[2 * j] = a * cos[j] - b * sin[j];
    x[2 * j + 1] = b * cos[j] + a * sin[j];
  }
}

template <class V>
void RopeOf(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
            const float* cos, const float* sin) {
  for (uint32_t h = 0; h < n_heads; ++h, x += head_dim) {
    if (adjacent) {
      RopeAdjacent<V>(x, dims / 2, cos, sin);
    } else {
      RopeHalf<V>(x, dims / 2, cos, sin);
    }
  }
}

template <class V>
void SiluMulOf(const float* gate, const float* up, uint32_t n, float* y) {
  Map<V>(gate, up, n, y, [](auto g, auto u) { return SiluOf<V>(g, u); });
}

template <class V>
void GeluTanhMulOf(const float* gate, const float* up, uint32_t n, float* y) {
  Map<V>(gate, up, n, y, [](auto g, auto u) { return GeluTanhOf<V>(g, u); });
}

template <class V>
void SwigluClampedMulOf(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                        float* y) {
  Map<V>(gate, up, n, y, [=](auto g, auto u) { return SwigluClampedOf<V>(g, u, limit, alpha); });
}

template <class V>
void AddOf(const float* x, float scale, uint32_t n, float* y) {
  const typename V::Vec s = V::Same(scale);
  Map<V>(x, y, n, y, [=](auto a, auto b) { return V::Add(b, V::Mul(s, a)); });
}

template <class V>
void MulSigmoidOf(const float* gate, uint32_t n, float* y) {
  Map<V>(gate, y, n, y, [](auto g, auto v) { return V::Mul(v, SigmoidOf<V>(g)); });
}

template <class V>
void SoftmaxOf(float* x, uint32_t n) {
  if (n == 0) return;
  float max = x[0];
  for (uint32_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  const typename V::Vec m = V::Same(max);
  Map<V>(x, x, n, x, [=](auto v, auto) { return ExpOf<V>(V::Sub(v, m)); });
  typename V::Vec sums = V::Zero();
  uint32_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) sums = V::Add(sums, V::Load(x + i));
  float sum = V::Sum(sums);
  for (; i < n; ++i) sum += x[i];
  const typename V::Vec inverse = V::Same(1.0f / sum);
  Map<V>(x, x, n, x, [=](auto v, auto) { return V::Mul(v, inverse); });
}

}  // namespace
}  // namespace sluice
