// Activations to int8 and rows made and quantised in one pass: simd/fused.h over AVX-512.
#include "kernels/simd/fused.h"

#include "kernels/avx512/floats.h"
#include "kernels/avx512/leaves.h"
#include "kernels/avx512/vectors.h"
#include "kernels/simd/elementwise.h"

namespace sluice::avx512 {
namespace {

// What fused.h calls Q.
struct Quantizer16 {
  using V = F32x16;
  static constexpr uint32_t kVecs = 2;
  using Largest = __m512i;

  static Largest Nothing() { return _mm512_setzero_si512(); }
  // As bits, NaN and Inf are larger than every finite value.
  static Largest Include(Largest m, __m512 v) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    return _mm512_max_epi32(m, _mm512_and_si512(_mm512_castps_si512(v), mask));
  }
  static uint32_t Bits(Largest m) {
    const __m256i half =
        _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i v = _mm_max_epi32(LowLane(half), HighLane(half));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(v));
  }

  template <bool kRest>
  static void Round(__m512* v, float factor, int8_t* q, int16_t* sums, float scale) {
    __m128i quants[kVecs];  // in -127..127
    for (uint32_t j = 0; j < kVecs; ++j) {
      const __m512i i32 = _mm512_cvtps_epi32(V::Mul(v[j], V::Same(factor)));
      if constexpr (kRest) {
        v[j] = V::Sub(v[j], V::Mul(V::Same(scale), _mm512_cvtepi32_ps(i32)));
      }
      quants[j] = _mm512_cvtepi32_epi8(i32);
    }
    const __m256i all = Join(quants[0], quants[1]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), all);
    __m256i sum = Ymm::DotBytes(Ymm::Zero(), _mm256_set1_epi8(1), all);
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
    sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(LowLane(sum)));
    sums[1] = static_cast<int16_t>(_mm_cvtsi128_si32(HighLane(sum)));
  }
};

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  QuantizeRow(x, n, {.format = format, .q = q, .scale = scale, .sums = sums});
}

void QuantizeRow(const float* x, uint32_t n, const ActOut& out) {
  QuantizeRowOf<Quantizer16>(x, n, out);
}

void NormRow(const NormArgs& args) {
  NormRowOf<Quantizer16, SumOfSquares<F32x16>, Add, RmsNorm>(args);
}

void GluRow(const GluArgs& args) {
  GluRowOf<Quantizer16, SiluMul, GeluTanhMul, SwigluClampedMul>(args);
}

}  // namespace sluice::avx512
