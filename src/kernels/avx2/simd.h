// Small AVX2 building blocks shared by the translation units of this folder.
//
// Contract: everything sits in an unnamed namespace, so no function compiled with AVX2 flags can be
// merged into common code; for the same reason these units use no inline function of other headers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice {
namespace {

inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m128i Load64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  __builtin_memcpy(&v, p, 2);
  return v;
}
inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
inline int32_t LoadI32(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}

// The same 16 bytes in both lanes.
inline __m256i BothLanes(__m128i v) { return _mm256_broadcastsi128_si256(v); }
inline __m256i Join(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
inline __m128i LowLane(__m256i v) { return _mm256_castsi256_si128(v); }
inline __m128i HighLane(__m256i v) { return _mm256_extracti128_si256(v, 1); }

// Steps of the reduction trees: each halves the number of summands per row and doubles the rows per
// vector.
inline __m256i Fold16(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
}
inline __m256i FoldPairs16(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
inline __m256i FoldQuads16(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
inline __m256i Fold32(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
inline __m256i FoldPairs32(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
inline __m256i FoldLanes32(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}

// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)): the order of scalar/lanes.h.
inline float FoldFloats(__m256 v) {
  const __m128 quad = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

// out[j] holds dword j of in[0..7].
inline void Transpose8x8(const __m256i* in, __m256i* out) {
  __m256i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi32(in[2 * i], in[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi32(in[2 * i], in[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    out[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

// 16 bytes of nibbles to 32 bytes: low nibbles first.
inline __m256i SpreadNibbles(const uint8_t* p) {
  const __m128i v = Load128(p);
  return _mm256_and_si256(Join(v, _mm_srli_epi16(v, 4)), _mm256_set1_epi8(15));
}

// Keeps a running sum in its register: without it the compiler turns the chain of a register tile
// into a tree, has too few registers for that and spills every product.
inline void KeepChain(__m256i& v) { asm("" : "+x"(v)); }

// Bits as float, whatever rounding or flushing mode: a move.
inline float FloatOfBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

}  // namespace
}  // namespace sluice
