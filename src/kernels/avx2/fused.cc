// Activations to int8 and rows made and quantised in one pass: simd/fused.h over AVX2.
#include "kernels/simd/fused.h"

#include "kernels/avx2/floats.h"
#include "kernels/avx2/leaves.h"
#include "kernels/simd/elementwise.h"

namespace sluice::avx2 {
namespace {

// What fused.h calls Q.
struct Quantizer8 {
  using V = F32x8;
  static constexpr uint32_t kVecs = 4;
  using Largest = __m256i;

  static Largest Nothing() { return _mm256_setzero_si256(); }
  // As bits, NaN and Inf are larger than every finite value.
  static Largest Include(Largest m, __m256 v) {
    const __m256i magnitude =
        _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epi32(m, magnitude);
  }
  static uint32_t Bits(Largest m) {
    __m128i v = _mm_max_epi32(LowLane(m), HighLane(m));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(v));
  }

  // Quants lie in -127..127, so the packs cannot saturate.
  template <bool kRest>
  static void Round(__m256* v, float factor, int8_t* q, int16_t* sums, float scale) {
    const __m256 f = _mm256_set1_ps(factor), s = _mm256_set1_ps(scale);
    __m256i i32[kVecs];
    for (uint32_t j = 0; j < kVecs; ++j) {
      i32[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], f));
      if constexpr (kRest) {
        v[j] = _mm256_sub_ps(v[j], _mm256_mul_ps(s, _mm256_cvtepi32_ps(i32[j])));
      }
    }
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(i32[0], i32[1]), _mm256_packs_epi32(i32[2], i32[3]));
    const __m256i in_order =
        _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), in_order);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), in_order);
    __m256i sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
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
  QuantizeRowOf<Quantizer8>(x, n, out);
}

void NormRow(const NormArgs& args) {
  NormRowOf<Quantizer8, SumOfSquares<F32x8>, Add, RmsNorm>(args);
}

void GluRow(const GluArgs& args) {
  GluRowOf<Quantizer8, SiluMul, GeluTanhMul, SwigluClampedMul>(args);
}

}  // namespace sluice::avx2
