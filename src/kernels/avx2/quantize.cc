// Activations to int8: the exact integers, scales and sums of scalar/quantize.cc.
#include "kernels/avx2/leaves.h"
#include "kernels/avx2/simd.h"

namespace sluice::avx2 {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u, kTinyBits = 0x03800000u;  // 2^-120

// Largest magnitude as bits: NaN and Inf are larger than every finite value.
uint32_t MaxBits(const float* x, uint32_t n) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i max = _mm256_setzero_si256();
  for (uint32_t i = 0; i < n; i += 8) {
    max = _mm256_max_epi32(max, _mm256_and_si256(Load256(x + i), mask));
  }
  __m128i m = _mm_max_epi32(LowLane(max), HighLane(max));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// 32 quants; they lie in -127..127, so the packs cannot saturate.
__m256i Quants32(const float* x, __m256 inverse) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  }
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of the first and the second 16 quants.
void Sums16(__m256i q, int16_t* first, int16_t* second) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __m256i v = _mm256_add_epi32(quads, _mm256_shuffle_epi32(quads, 0x4e));
  v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0xb1));
  *first = static_cast<int16_t>(_mm_cvtsi128_si32(LowLane(v)));
  *second = static_cast<int16_t>(_mm_cvtsi128_si32(HighLane(v)));
}

template <bool kFine>
void Block(const float* x, uint32_t n, int8_t* q, float* scale, int16_t* sums) {
  const uint32_t bits = MaxBits(x, n);
  const bool usable = bits >= kTinyBits && bits < kInfBits;
  const float max_abs = FloatOfBits(bits);
  *scale = usable ? max_abs / 127.0f : FloatOfBits(bits >= kInfBits ? 0x7fc00000u : 0u);
  const __m256 inverse = _mm256_set1_ps(usable ? 127.0f / max_abs : 0.0f);
  for (uint32_t i = 0; i < n; i += 32) {
    const __m256i v = usable ? Quants32(x + i, inverse) : _mm256_setzero_si256();
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i), v);
    int16_t first, second;
    Sums16(v, &first, &second);
    if constexpr (kFine) {
      sums[i / 16] = first;
      sums[i / 16 + 1] = second;
    } else {
      sums[i / 32] = static_cast<int16_t>(first + second);
    }
  }
}

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  if (format == ActFormat::kQ8x32) {
    for (uint32_t i = 0; i < n; i += 32)
      Block<false>(x + i, 32, q + i, scale + i / 32, sums + i / 32);
  } else if (format == ActFormat::kQ8x256) {
    for (uint32_t i = 0; i < n; i += 256) {
      Block<true>(x + i, 256, q + i, scale + i / 256, sums + i / 16);
    }
  }
}

}  // namespace sluice::avx2
