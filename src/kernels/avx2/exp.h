// The exponential of eight floats.
//
// Contract: relative error below 1.2e-7 (2 ulp) for -87.3 <= x <= 88; 0 below, about 1.65e38 above;
// NaN passes. Unnamed namespace: see simd.h.
#pragma once

#include <immintrin.h>

namespace sluice {
namespace {

// e^x = 2^n e^r with n = round(x / ln 2); e^r by a degree-6 polynomial on |r| <= ln(2) / 2 (the
// classic single-precision coefficients of the Cephes library's expf).
inline __m256 Exp(__m256 x) {
  const __m256 least = _mm256_set1_ps(-87.33654f);
  const __m256 keep = _mm256_cmp_ps(x, least, _CMP_NLT_UQ);  // true for NaN
  // min and max return their second operand when one is NaN.
  const __m256 in = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(least, x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(in, _mm256_set1_ps(1.44269504088896341f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), in);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(power)), keep);
}

// 1 / (1 + e^-x).
inline __m256 Sigmoid(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return _mm256_div_ps(one, _mm256_add_ps(one, Exp(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

}  // namespace
}  // namespace sluice
