#include "kernels/avx2/exp.h"
#include "kernels/avx2/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::avx2 {
namespace {

// 8 * kVectors columns of the state from column c on. A column's chain runs over i in order
// whatever the block width. The second pass finds the block in the first-level cache, so S crosses
// the memory bus once.
template <int kVectors>
void Columns(const DeltaStepArgs& args, uint32_t c) {
  __m256 dot[kVectors], delta[kVectors], out[kVectors];
  for (int j = 0; j < kVectors; ++j) dot[j] = out[j] = _mm256_setzero_ps();
  for (uint32_t i = 0; i < args.kd; ++i) {
    const float* s = args.state + uint64_t{i} * args.vd + c;
    const __m256 k = _mm256_set1_ps(args.k[i]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      dot[j] = _mm256_fmadd_ps(k, _mm256_loadu_ps(s + 8 * j), dot[j]);
    }
  }
  const __m256 decay = _mm256_set1_ps(args.decay), beta = _mm256_set1_ps(args.beta);
  for (int j = 0; j < kVectors; ++j) {
    const __m256 v = _mm256_loadu_ps(args.v + c + 8 * j);
    delta[j] = _mm256_mul_ps(beta, _mm256_fnmadd_ps(decay, dot[j], v));
  }
  for (uint32_t i = 0; i < args.kd; ++i) {
    float* s = args.state + uint64_t{i} * args.vd + c;
    const __m256 k = _mm256_set1_ps(args.k[i]), q = _mm256_set1_ps(args.q[i]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const __m256 kept = _mm256_mul_ps(decay, _mm256_loadu_ps(s + 8 * j));
      const __m256 now = _mm256_fmadd_ps(k, delta[j], kept);
      _mm256_storeu_ps(s + 8 * j, now);
      out[j] = _mm256_fmadd_ps(q, now, out[j]);
    }
  }
  for (int j = 0; j < kVectors; ++j) _mm256_storeu_ps(args.out + c + 8 * j, out[j]);
}

// Window sums of channels [begin, end) to y; the state moves on.
template <uint32_t kPast>
void Windows(const float* w, const float* x, float* state, uint32_t begin, uint32_t end, float* y) {
  for (uint32_t c = begin; c < end; ++c) {
    const float* wc = w + uint64_t{c} * (kPast + 1);
    float* window = state + uint64_t{c} * kPast;
    float sum = 0;
    for (uint32_t i = 0; i < kPast; ++i) sum += wc[i] * window[i];
    const float in = x[c];
    sum += wc[kPast] * in;
    for (uint32_t i = 0; i + 1 < kPast; ++i) window[i] = window[i + 1];
    window[kPast - 1] = in;
    y[c] = sum;
  }
}

}  // namespace

void DeltaStep(const DeltaStepArgs& args) {
  if (args.vd % 8 != 0) return scalar::DeltaStep(args);
  uint32_t c = 0;
  for (; c + 32 <= args.vd; c += 32) Columns<4>(args, c);
  for (; c < args.vd; c += 8) Columns<1>(args, c);
}

void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y) {
  if (kernel != 4) return scalar::ConvStep(w, kernel, x, state, begin, end, y);
  Windows<3>(w, x, state, begin, end, y);
  uint32_t c = begin;
  for (; c + 8 <= end; c += 8) {
    const __m256 v = _mm256_loadu_ps(y + c);
    _mm256_storeu_ps(y + c, _mm256_mul_ps(v, Sigmoid(v)));
  }
  for (; c < end; ++c) {
    const __m256 v = _mm256_set1_ps(y[c]);
    y[c] = _mm256_cvtss_f32(_mm256_mul_ps(v, Sigmoid(v)));
  }
}

}  // namespace sluice::avx2
