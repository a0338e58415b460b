// Sixteen floats: the vector type of the AVX-512 leaves.
//
// Contract: simd/rows.h says what each function is. Unnamed namespace: see avx2/simd.h.
#pragma once

#include "kernels/avx2/floats.h"
#include "kernels/avxvnni/intrin.h"

namespace sluice {
namespace {

struct F32x16 {
  using Vec = __m512;
  static constexpr uint32_t kLanes = 16, kTokens = 6;
  static constexpr int kRegisters = 32;

  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Same(float v) { return _mm512_set1_ps(v); }
  static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }

  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec Fnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }
  // The instructions return their second operand when one is NaN.
  static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec MaxNumber(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec Round(Vec v) { return _mm512_roundscale_ps(v, 8); }  // to whole numbers, no exception
  static Vec Pow2(Vec n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  static Vec ZeroBelow(Vec v, Vec x, Vec least) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), v);  // true for NaN
  }

  static __m256 Low(Vec v) { return _mm512_castps512_ps256(v); }
  static __m256 High(Vec v) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  }
  static float First(Vec v) { return F32x8::First(Low(v)); }
  static float Sum(Vec v) { return F32x8::Sum(F32x8::Add(Low(v), High(v))); }
  static float Largest(Vec v) { return F32x8::Largest(F32x8::Max(Low(v), High(v))); }

  static Vec F32(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static Vec F16(const uint8_t* p) { return _mm512_cvtph_ps(Load256(p)); }
  static Vec Bf16(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
  }
  static Vec I8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load128(p))); }
  static Vec U4(const uint8_t* p, bool high) {
    const __m128i bytes = Load128(p);
    const __m128i nibbles = high ? _mm_srli_epi16(bytes, 4) : bytes;
    const __m512i q = _mm512_cvtepu8_epi32(_mm_and_si128(nibbles, _mm_set1_epi8(15)));
    return _mm512_cvtepi32_ps(q);
  }
  static Vec SameF16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(LoadU16(p))));
  }

  // simd/elementwise.h
  static Vec Twice(const float* p) {
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
  }
  static void TurnPairs(float* x, const float* cos, const float* sin) {
    const Vec v = Load(x), swapped = _mm512_permute_ps(v, 0xb1);
    const Vec turned = Mul(swapped, Twice(sin));
    Store(x, _mm512_fmaddsub_ps(Mul(v, Twice(cos)), Same(1.0f), turned));
  }
};

}  // namespace
}  // namespace sluice
