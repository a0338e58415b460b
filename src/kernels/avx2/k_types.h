// How AVX2 reads the 256-element weight types.
//
// Contract: each type gives
//   kBytes            bytes of a block
//   kFine             scales are per 16 elements (else per 32)
//   kAcc              maddubs results that fit one int16 lane; 1 for signed quants
//   kSigned           quants are int8, else uint8
//   kOffset           what is stored for a quant of zero
//   kMin              a second scale (dmin) multiplies the sums weighted by Head.n
//   kShift            that weighted sum is taken off the integer sum (it undoes kOffset)
//   kTernary          quants are 0..3 and all integer scales are 1
//   kScaleAt          offset of d (a half); kMinAt that of dmin. A type whose d is not a half as it
//                     stands has Scale(block, stride) instead: eight rows' scales
//   ReadHead(block)   the integer scales
//   Quants(block, g)  the 32 quants of group g in element order
// Head.s holds the scales of the even groups of 16 in the low lane and of the odd ones in the high
// lane (both lanes are the same when scales are per 32); Head.n is in the order of the activation
// sums. Only the block's own bytes are read. See scalar/int_block.h for what is computed.
#pragma once

#include "kernels/avx2/legacy_types.h"

namespace sluice {
namespace {

struct Head {
  __m256i s, n;
};

// The scales of a block of eight rows: a half, or what the type makes of its bytes.
template <class T>
inline __m256 BlockScales(const uint8_t* block, uint64_t stride) {
  if constexpr (requires { T::Scale(block, stride); }) {
    return T::Scale(block, stride);
  } else {
    return Halves8(block + T::kScaleAt, stride);
  }
}

// 16 bytes: the even ones, then the odd ones.
inline __m128i EvenOdd(__m128i v) {
  return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}

// Moves bit `from` of each byte to bit `to` and clears the others.
inline __m256i MoveBit(__m256i v, int from, int to) {
  const __m256i moved =
      from >= to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(1 << to)));
}

// Two bits per quant: 128 elements in 32 bytes.
inline __m256i TwoBits(const uint8_t* qs, int g) {
  const __m256i v = Load256(qs + 32 * (g / 4));
  return _mm256_and_si256(_mm256_srli_epi16(v, 2 * (g % 4)), _mm256_set1_epi8(3));
}

inline __m256i FourBits(const uint8_t* qs, int g) {
  const __m256i v = Load256(qs + 32 * (g / 2));
  return _mm256_and_si256(g % 2 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}

// The twelve bytes a[4] b[4] c[4] of Q4_K and Q5_K hold eight 6-bit scales and eight mins:
// scales a & 63, (c & 15) | (a >> 6) << 4; mins b & 63, (c >> 4) | (b >> 6) << 4.
inline Head ReadScalesMins(const uint8_t* block) {
  const __m128i v = Load128(block);
  const __m128i low =
      _mm_shuffle_epi8(v, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  const __m128i high =
      _mm_shuffle_epi8(v, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
  const __m128i shifted = _mm_blend_epi16(low, _mm_srli_epi16(low, 4), 0xc0);
  const __m128i mask =
      _mm_setr_epi8(63, 63, 63, 63, 15, 15, 15, 15, 63, 63, 63, 63, 15, 15, 15, 15);
  const __m128i top = _mm_and_si128(_mm_srli_epi16(high, 2), _mm_set1_epi8(0x30));
  const __m128i all = _mm_or_si128(_mm_and_si128(shifted, mask), top);
  // Sums are per 16 elements: each min serves two of them.
  const __m128i twice = _mm_unpackhi_epi8(all, all);
  return {BothLanes(_mm_cvtepu8_epi16(all)), _mm256_cvtepu8_epi16(twice)};
}

struct TypeQ4_K {
  static constexpr uint32_t kBytes = 144, kScaleAt = 0, kMinAt = 2;
  static constexpr bool kFine = false, kSigned = false, kMin = true, kShift = false,
                        kTernary = false;
  static constexpr int kAcc = 8, kOffset = 0;
  static Head ReadHead(const uint8_t* b) { return ReadScalesMins(b); }
  static __m256i Quants(const uint8_t* b, int g) { return FourBits(b + 16, g); }
};

struct TypeQ5_K {
  static constexpr uint32_t kBytes = 176, kScaleAt = 0, kMinAt = 2;
  static constexpr bool kFine = false, kSigned = false, kMin = true, kShift = false,
                        kTernary = false;
  static constexpr int kAcc = 4, kOffset = 0;
  static Head ReadHead(const uint8_t* b) { return ReadScalesMins(b); }
  static __m256i Quants(const uint8_t* b, int g) {
    return _mm256_or_si256(FourBits(b + 48, g), MoveBit(Load256(b + 16), g, 4));
  }
};

struct TypeQ2_K {
  static constexpr uint32_t kBytes = 84, kScaleAt = 80, kMinAt = 82;
  static constexpr bool kFine = true, kSigned = false, kMin = true, kShift = false,
                        kTernary = false;
  static constexpr int kAcc = 4, kOffset = 0;
  static Head ReadHead(const uint8_t* b) {
    const __m128i v = Load128(b), mask = _mm_set1_epi8(15);
    const __m128i s = _mm_and_si128(v, mask), n = _mm_and_si128(_mm_srli_epi16(v, 4), mask);
    return {_mm256_cvtepu8_epi16(EvenOdd(s)), _mm256_cvtepu8_epi16(n)};
  }
  static __m256i Quants(const uint8_t* b, int g) { return TwoBits(b + 16, g); }
};

struct TypeQ3_K {
  static constexpr uint32_t kBytes = 110, kScaleAt = 108, kMinAt = 0;
  static constexpr bool kFine = true, kSigned = false, kMin = false, kShift = true,
                        kTernary = false;
  static constexpr int kAcc = 4, kOffset = 4;
  static Head ReadHead(const uint8_t* b) {
    const __m128i v = Load64(b + 96);
    const __m128i both = _mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4));
    const __m128i low = _mm_and_si128(both, _mm_set1_epi8(15));
    const __m128i top =
        _mm_srlv_epi32(_mm_set1_epi32(LoadI32(b + 104)), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i high = _mm_slli_epi16(_mm_and_si128(top, _mm_set1_epi8(3)), 4);
    const __m128i s = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
    // Quants are stored 0..7 for -4..3.
    return {_mm256_cvtepi8_epi16(EvenOdd(s)), _mm256_slli_epi16(_mm256_cvtepi8_epi16(s), 2)};
  }
  static __m256i Quants(const uint8_t* b, int g) {
    return _mm256_or_si256(TwoBits(b + 32, g), MoveBit(Load256(b), g, 2));
  }
};

struct TypeQ6_K {
  static constexpr uint32_t kBytes = 210, kScaleAt = 208, kMinAt = 0;
  static constexpr bool kFine = true, kSigned = false, kMin = false, kShift = true,
                        kTernary = false;
  static constexpr int kAcc = 2, kOffset = 32;
  static Head ReadHead(const uint8_t* b) {
    const __m128i s = Load128(b + 192);
    // Quants are stored 0..63 for -32..31.
    return {_mm256_cvtepi8_epi16(EvenOdd(s)), _mm256_slli_epi16(_mm256_cvtepi8_epi16(s), 5)};
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const int half = g / 4, j = g % 4;
    const __m256i ql = Load256(b + 64 * half + 32 * (j & 1));
    const __m256i qh = Load256(b + 128 + 32 * half);
    const __m256i low =
        _mm256_and_si256(j >= 2 ? _mm256_srli_epi16(ql, 4) : ql, _mm256_set1_epi8(15));
    const __m256i moved =
        j < 2 ? _mm256_slli_epi16(qh, 4 - 2 * j) : _mm256_srli_epi16(qh, 2 * j - 4);
    return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }
};

struct TypeIQ4_XS {
  static constexpr uint32_t kBytes = 136, kScaleAt = 0, kMinAt = 0;
  static constexpr bool kFine = false, kSigned = true, kMin = false, kShift = false,
                        kTernary = false;
  static constexpr int kAcc = 1, kOffset = 0;
  static Head ReadHead(const uint8_t* b) {
    const __m128i sl = _mm_cvtsi32_si128(LoadI32(b + 4)), mask = _mm_set1_epi8(15);
    const __m128i nibbles =
        _mm_unpacklo_epi8(_mm_and_si128(sl, mask), _mm_and_si128(_mm_srli_epi16(sl, 4), mask));
    const __m128i sh = _mm_set1_epi16(static_cast<int16_t>(LoadU16(b + 2)));
    // Brings bits 2g, 2g + 1 to the top of lane g.
    const __m128i up = _mm_mullo_epi16(
        sh, _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
    const __m128i high = _mm_slli_epi16(_mm_srli_epi16(up, 14), 4);
    const __m128i s =
        _mm_sub_epi16(_mm_or_si128(_mm_cvtepu8_epi16(nibbles), high), _mm_set1_epi16(32));
    return {BothLanes(s), _mm256_setzero_si256()};
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const __m256i table = BothLanes(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
    return _mm256_shuffle_epi8(table, SpreadNibbles(b + 8 + 16 * g));
  }
};

struct TypeTQ2_0 {
  static constexpr uint32_t kBytes = 66, kScaleAt = 64, kMinAt = 0;
  static constexpr bool kFine = false, kSigned = false, kMin = false, kShift = true,
                        kTernary = true;
  static constexpr int kAcc = 8, kOffset = 1;
  static Head ReadHead(const uint8_t*) { return {_mm256_set1_epi16(1), _mm256_set1_epi16(1)}; }
  static __m256i Quants(const uint8_t* b, int g) { return TwoBits(b, g); }
};

struct TypeTQ1_0 {
  static constexpr uint32_t kBytes = 54, kScaleAt = 52, kMinAt = 0;
  static constexpr bool kFine = false, kSigned = false, kMin = false, kShift = true,
                        kTernary = true;
  static constexpr int kAcc = 8, kOffset = 1;
  static Head ReadHead(const uint8_t*) { return {_mm256_set1_epi16(1), _mm256_set1_epi16(1)}; }

  static __m256i TimesPow3(__m256i v, int k) {
    for (int i = 0; i < k; ++i) v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    return v;
  }
  // (v * 3) >> 8 of a byte: one more from 86 and from 171 on.
  static __m256i Digit(__m256i v) {
    const __m256i one = _mm256_set1_epi8(1);
    const __m256i above_85 = _mm256_subs_epu8(v, _mm256_set1_epi8(85));
    const __m256i above_170 = _mm256_subs_epu8(v, _mm256_set1_epi8(static_cast<char>(170)));
    return _mm256_add_epi8(_mm256_min_epu8(above_85, one), _mm256_min_epu8(above_170, one));
  }
  static __m256i Quants(const uint8_t* b, int g) {
    if (g < 5) return Digit(TimesPow3(Load256(b), g));
    const __m256i tail = BothLanes(Load128(b + 32));
    if (g < 7) {
      const int k = 2 * (g - 5);
      return Digit(_mm256_blend_epi32(TimesPow3(tail, k), TimesPow3(tail, k + 1), 0xf0));
    }
    // Sixteen fifth digits, then four bytes give their digits 0..3.
    const __m256i last = _mm256_set1_epi32(LoadI32(b + 48));
    __m256i high = _mm256_blend_epi32(last, TimesPow3(last, 1), 0x20);
    high = _mm256_blend_epi32(high, TimesPow3(last, 2), 0x40);
    high = _mm256_blend_epi32(high, TimesPow3(last, 3), 0x80);
    return Digit(_mm256_blend_epi32(TimesPow3(tail, 4), high, 0xf0));
  }
};

}  // namespace
}  // namespace sluice
