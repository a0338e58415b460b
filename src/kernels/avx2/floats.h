// Eight floats: the vector type of the AVX2 leaves.
//
// Contract: simd/rows.h says what each function is. Unnamed namespace: see simd.h.
#pragma once

#include "kernels/avx2/simd.h"

namespace sluice {
namespace {

struct F32x8 {
  using Vec = __m256;
  static constexpr uint32_t kLanes = 8, kTokens = 3;
  static constexpr int kRegisters = 16;

  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Same(float v) { return _mm256_set1_ps(v); }
  static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }

  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec Fnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }
  // The instructions return their second operand when one is NaN.
  static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec MaxNumber(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec Round(Vec v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Vec Pow2(Vec n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static Vec ZeroBelow(Vec v, Vec x, Vec least) {
    return _mm256_and_ps(v, _mm256_cmp_ps(x, least, _CMP_NLT_UQ));  // true for NaN
  }

  static float First(Vec v) { return _mm256_cvtss_f32(v); }
  static float Sum(Vec v) { return FoldFloats(v); }
  static float Largest(Vec v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  static Vec F32(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static Vec F16(const uint8_t* p) { return _mm256_cvtph_ps(Load128(p)); }
  static Vec Bf16(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
  }
  static Vec I8(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load64(p))); }
  static Vec U4(const uint8_t* p, bool high) {
    const __m128i bytes = Load64(p);
    const __m128i nibbles = high ? _mm_srli_epi16(bytes, 4) : bytes;
    const __m256i q = _mm256_cvtepu8_epi32(_mm_and_si128(nibbles, _mm_set1_epi8(15)));
    return _mm256_cvtepi32_ps(q);
  }
  static Vec SameF16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(LoadU16(p))));
  }

  // simd/elementwise.h
  static Vec Twice(const float* p) {
    const __m128 v = _mm_loadu_ps(p);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_unpacklo_ps(v, v)),
                                _mm_unpackhi_ps(v, v), 1);
  }
  static void TurnPairs(float* x, const float* cos, const float* sin) {
    const Vec v = Load(x), swapped = _mm256_permute_ps(v, 0xb1);
    Store(x, _mm256_addsub_ps(Mul(v, Twice(cos)), Mul(swapped, Twice(sin))));
  }
};

}  // namespace
}  // namespace sluice
