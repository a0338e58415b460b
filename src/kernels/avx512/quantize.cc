// Activations to int8: the exact integers, scales and sums of scalar/quantize.cc.
#include "kernels/avx512/leaves.h"
#include "kernels/avx512/vectors.h"

namespace sluice::avx512 {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u, kTinyBits = 0x03800000u;  // 2^-120

// Largest magnitude as bits: NaN and Inf are larger than every finite value.
uint32_t MaxBits(const float* x, uint32_t n) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  __m512i max = Zmm::Zero();
  for (uint32_t i = 0; i < n; i += 16) {
    max = _mm512_max_epi32(max, _mm512_and_si512(_mm512_loadu_si512(x + i), mask));
  }
  const __m256i half =
      _mm256_max_epi32(_mm512_castsi512_si256(max), _mm512_extracti64x4_epi64(max, 1));
  __m128i m = _mm_max_epi32(LowLane(half), HighLane(half));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// Stores 16 quants; they lie in -127..127.
inline void Quants16(const float* x, __m512 inverse, int8_t* q) {
  const __m512i v = _mm512_cvtps_epi32(Zmm::Mul(Zmm::LoadFloats(x), inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(v));
}

// The sum of 32 quants.
inline int16_t Sum32(const int8_t* q) {
  const __m256i quads = Ymm::DotBytes(Ymm::Zero(), _mm256_set1_epi8(1), Load256(q));
  __m128i v = _mm_add_epi32(LowLane(quads), HighLane(quads));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return static_cast<int16_t>(_mm_cvtsi128_si32(v));
}

// The sums of each 16 of 128 quants.
inline void Sums16(const int8_t* q, int16_t* sums) {
  __m256i quads[4];
  for (int i = 0; i < 4; ++i) {
    quads[i] = Ymm::DotBytes(Ymm::Zero(), _mm256_set1_epi8(1), Load256(q + 32 * i));
  }
  // Lane of 128 bits l, dword i: the sum of lane l of quads[i].
  const __m256i v = FoldPairs32(Fold32(quads[0], quads[1]), Fold32(quads[2], quads[3]));
  const __m128i pairs = _mm_or_si128(_mm_and_si128(LowLane(v), _mm_set1_epi32(0xffff)),
                                     _mm_slli_epi32(HighLane(v), 16));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sums), pairs);
}

template <uint32_t kElems>
void Block(const float* x, int8_t* q, float* scale, int16_t* sums) {
  const uint32_t bits = MaxBits(x, kElems);
  const bool usable = bits >= kTinyBits && bits < kInfBits;
  const float max_abs = FloatOfBits(bits);
  *scale = usable ? max_abs / 127.0f : FloatOfBits(bits >= kInfBits ? 0x7fc00000u : 0u);
  if (!usable) {
    __builtin_memset(q, 0, kElems);
  } else {
    const __m512 inverse = Zmm::SameFloat(127.0f / max_abs);
    for (uint32_t i = 0; i < kElems; i += 16) Quants16(x + i, inverse, q + i);
  }
  if constexpr (kElems == 32) {
    *sums = Sum32(q);
  } else {
    for (uint32_t i = 0; i < kElems; i += 128) Sums16(q + i, sums + i / 16);
  }
}

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  if (format == ActFormat::kQ8x32) {
    for (uint32_t i = 0; i < n; i += 32) Block<32>(x + i, q + i, scale + i / 32, sums + i / 32);
  } else if (format == ActFormat::kQ8x256) {
    for (uint32_t i = 0; i < n; i += 256) Block<256>(x + i, q + i, scale + i / 256, sums + i / 16);
  }
}

}  // namespace sluice::avx512
