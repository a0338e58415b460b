#include "kernels/avx2/exp.h"
#include "kernels/avx2/leaves.h"
#include "kernels/avx2/simd.h"

namespace sluice::avx2 {
namespace {

// y[i] = f(a[i], b[i]); the tail runs in a padded vector, so an element's value never depends on n.
template <class F>
inline void Map(const float* a, const float* b, uint32_t n, float* y, F f) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, f(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  }
  if (i == n) return;
  alignas(32) float ta[8] = {}, tb[8] = {}, ty[8];
  for (uint32_t j = i; j < n; ++j) {
    ta[j - i] = a[j];
    tb[j - i] = b[j];
  }
  _mm256_store_ps(ty, f(_mm256_load_ps(ta), _mm256_load_ps(tb)));
  for (uint32_t j = i; j < n; ++j) y[j] = ty[j - i];
}

void RopeHalf(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + 8 <= half; j += 8) {
    const __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + half + j);
    const __m256 c = _mm256_loadu_ps(cos + j), s = _mm256_loadu_ps(sin + j);
    _mm256_storeu_ps(x + j, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(x + half + j, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
  for (; j < half; ++j) {
    const float a = x[j], b = x[half + j];
    x[j] = a * cos[j] - b * sin[j];
    x[half + j] = b * cos[j] + a * sin[j];
  }
}

// Four values, each twice.
inline __m256 Twice(const float* p) {
  const __m128 v = _mm_loadu_ps(p);
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_unpacklo_ps(v, v)), _mm_unpackhi_ps(v, v),
                              1);
}

void RopeAdjacent(float* x, uint32_t half, const float* cos, const float* sin) {
  uint32_t j = 0;
  for (; j + 4 <= half; j += 4) {
    const __m256 v = _mm256_loadu_ps(x + 2 * j);
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    _mm256_storeu_ps(x + 2 * j, _mm256_addsub_ps(_mm256_mul_ps(v, Twice(cos + j)),
                                                 _mm256_mul_ps(swapped, Twice(sin + j))));
  }
  for (; j < half; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1];
    x[2 * j] = a * cos[j] - b * sin[j];
    x[2 * j + 1] = b * cos[j] + a * sin[j];
  }
}

}  // namespace

float SumOfSquares(const float* x, uint32_t n) {
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(x + i + 8);
    a = _mm256_fmadd_ps(u, u, a);
    b = _mm256_fmadd_ps(v, v, b);
  }
  float sum = FoldFloats(_mm256_add_ps(a, b));
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNorm(const float* x, const float* w, float eps, uint32_t n, float* y) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
  const __m256 s = _mm256_set1_ps(scale);
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), s);
    _mm256_storeu_ps(y + i, w ? _mm256_mul_ps(v, _mm256_loadu_ps(w + i)) : v);
  }
  for (; i < n; ++i) y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
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
      [](__m256 g, __m256 u) { return _mm256_mul_ps(_mm256_mul_ps(g, Sigmoid(g)), u); });
}

// 0.5 (1 + tanh u) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y) {
  Map(gate, up, n, y, [](__m256 x, __m256 u) {
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
    const __m256 inner = _mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715f), x);
    const __m256 twice = _mm256_mul_ps(inner, _mm256_set1_ps(2 * 0.7978845608028654f));
    return _mm256_mul_ps(_mm256_mul_ps(x, Sigmoid(twice)), u);
  });
}

void SwigluClampedMul(const float* gate, const float* up, float limit, float alpha, uint32_t n,
                      float* y) {
  const __m256 most = _mm256_set1_ps(limit), least = _mm256_set1_ps(-limit);
  Map(gate, up, n, y, [=](__m256 g, __m256 u) {
    // min and max return their second operand when one is NaN: NaN passes the clamps.
    g = _mm256_min_ps(most, g);
    u = _mm256_max_ps(least, _mm256_min_ps(most, u));
    const __m256 s = Sigmoid(_mm256_mul_ps(_mm256_set1_ps(alpha), g));
    return _mm256_mul_ps(_mm256_mul_ps(g, s), _mm256_add_ps(u, _mm256_set1_ps(1.0f)));
  });
}

void Add(const float* x, float scale, uint32_t n, float* y) {
  const __m256 s = _mm256_set1_ps(scale);
  Map(x, y, n, y, [=](__m256 a, __m256 b) { return _mm256_add_ps(b, _mm256_mul_ps(s, a)); });
}

void MulSigmoid(const float* gate, uint32_t n, float* y) {
  Map(gate, y, n, y, [](__m256 g, __m256 v) { return _mm256_mul_ps(v, Sigmoid(g)); });
}

void Softmax(float* x, uint32_t n) {
  if (n == 0) return;
  float max = x[0];
  for (uint32_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  const __m256 m = _mm256_set1_ps(max);
  Map(x, x, n, x, [=](__m256 v, __m256) { return Exp(_mm256_sub_ps(v, m)); });
  __m256 sums = _mm256_setzero_ps();
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) sums = _mm256_add_ps(sums, _mm256_loadu_ps(x + i));
  float sum = FoldFloats(sums);
  for (; i < n; ++i) sum += x[i];
  const __m256 inverse = _mm256_set1_ps(1.0f / sum);
  Map(x, x, n, x, [=](__m256 v, __m256) { return _mm256_mul_ps(v, inverse); });
}

}  // namespace sluice::avx2
