// Vectors of one row per 32-bit lane, as the VNNI products use them: 256 bits here, 512 in
// avx512/vectors.h.
//
// Contract: a vector class gives kLanes, kTokens (tokens that share one reading of a panel, by the
// number of registers) and the operations below. DotBytes adds four unsigned times signed byte
// products to each lane and never saturates; DotWords adds two int16 products. Unnamed namespace:
// see avx2/simd.h.
#pragma once

#include "kernels/avx2/simd.h"
#include "kernels/avxvnni/intrin.h"

namespace sluice {
namespace {

struct Ymm {
  using Int = __m256i;
  using Float = __m256;
  static constexpr uint32_t kLanes = 8;
  static constexpr int kTokens = 4;

  static Int Zero() { return _mm256_setzero_si256(); }
  static Int Load(const int32_t* p) { return Load256(p); }
  static Int Broadcast(const void* p) { return _mm256_set1_epi32(LoadI32(p)); }
  static Int Same(int32_t v) { return _mm256_set1_epi32(v); }
  static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int Sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int Mul(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
#if defined(SLUICE_INTRINSICS) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  static Int DotBytes(Int acc, Int u, Int s) { return _mm256_dpbusd_epi32(acc, u, s); }
  static Int DotWords(Int acc, Int a, Int b) { return _mm256_dpwssd_epi32(acc, a, b); }
#else
  static Int DotBytes(Int acc, Int u, Int s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
  static Int DotWords(Int acc, Int a, Int b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
#endif

  static Float FloatZero() { return _mm256_setzero_ps(); }
  static Float LoadFloats(const float* p) { return _mm256_loadu_ps(p); }
  static void StoreFloats(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static Float SameFloat(float v) { return _mm256_set1_ps(v); }
  static Float ToFloat(Int v) { return _mm256_cvtepi32_ps(v); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
};

}  // namespace
}  // namespace sluice
