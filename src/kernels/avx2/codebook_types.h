// How AVX2 reads the IQ1, IQ2 and IQ3 types.
//
// Contract: as k_types.h. An index fetches four or eight grid values at once; signs are applied and
// an offset is added, so that quants are unsigned and the products those of the K-quants (kShift
// takes the offset off again). For what the integers mean see scalar/int_codebook.h. Only under
// SLUICE_CODEBOOKS.
#pragma once

#include "kernels/avx2/k_types.h"
#include "kernels/simd/signs.h"
#include "quant/codebooks.h"

namespace sluice {
namespace {

inline __m256i FourWords(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return _mm256_set_epi64x(static_cast<int64_t>(d), static_cast<int64_t>(c),
                           static_cast<int64_t>(b), static_cast<int64_t>(a));
}

inline uint64_t Entry8(const int8_t (*grid)[8], uint32_t index) {
  uint64_t v;
  __builtin_memcpy(&v, grid[index], 8);
  return v;
}
inline int32_t Entry4(const int8_t (*grid)[4], uint32_t index) { return LoadI32(grid[index]); }

// Signs of 32 elements, seven bits for eight.
inline __m256i EvenSignBytes(uint32_t bits) {
  const uint64_t* t = kSignTable.bytes;
  return FourWords(t[bits & 127], t[bits >> 7 & 127], t[bits >> 14 & 127], t[bits >> 21 & 127]);
}

// Signs of 32 elements, a bit each, as bytes of 1 or -1.
inline __m256i SignBytes(const uint8_t* p) {
  const __m256i pick = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                        2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(LoadI32(p)), pick);
  const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_or_si256(minus, _mm256_set1_epi8(1));
}

template <int kOffset>
inline __m256i Shifted(__m256i grid, __m256i signs) {
  return _mm256_add_epi8(_mm256_sign_epi8(grid, signs), _mm256_set1_epi8(kOffset));
}

inline __m128i Odd16(__m128i step) {
  return _mm_add_epi16(_mm_add_epi16(step, step), _mm_set1_epi16(1));
}

// Eight scales, one per 32 elements.
template <int kOffset>
inline Head HeadPer32(__m128i s) {
  const __m256i twice = Join(_mm_unpacklo_epi16(s, s), _mm_unpackhi_epi16(s, s));
  return {BothLanes(s), _mm256_mullo_epi16(twice, _mm256_set1_epi16(kOffset))};
}

// Sixteen scales as bytes, one per 16 elements.
template <int kOffset>
inline Head HeadPer16(__m128i s) {
  return {_mm256_cvtepu8_epi16(EvenOdd(s)),
          _mm256_mullo_epi16(_mm256_cvtepu8_epi16(s), _mm256_set1_epi16(kOffset))};
}

// Nibbles of bytes, low ones first: 2 s + 1 of each, as bytes.
inline __m128i OddNibbles(__m128i v) {
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i s =
      _mm_unpacklo_epi8(_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi16(v, 4), mask));
  return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

// 2 s + 1 of the top four bits of eight words.
inline __m128i OddTops(__m256i words) {
  const __m256i v = _mm256_srli_epi32(words, 28);
  return Odd16(_mm_packus_epi32(LowLane(v), HighLane(v)));
}

inline __m256 ScaledHalves(const uint8_t* p, uint64_t stride, float factor) {
  return _mm256_mul_ps(Halves8(p, stride), _mm256_set1_ps(factor));
}

struct CodebookType {
  static constexpr uint32_t kMinAt = 0;
  static constexpr bool kSigned = false, kMin = false, kShift = true, kTernary = false;
};

struct TypeIQ2_XXS : CodebookType {
  static constexpr uint32_t kBytes = 66;
  static constexpr bool kFine = false;
  static constexpr int kAcc = 1, kOffset = 43;
  static __m256 Scale(const uint8_t* b, uint64_t s) { return ScaledHalves(b, s, 0.125f); }
  static Head ReadHead(const uint8_t* b) {
    const __m256 low = _mm256_castsi256_ps(Load256(b + 2));
    const __m256 high = _mm256_castsi256_ps(Load256(b + 34));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd));
    return HeadPer32<kOffset>(OddTops(_mm256_permute4x64_epi64(odd, 0xd8)));
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint8_t* p = b + 2 + 8 * g;
    const auto* t = quant::kGridIq2Xxs;
    const __m256i grid =
        FourWords(Entry8(t, p[0]), Entry8(t, p[1]), Entry8(t, p[2]), Entry8(t, p[3]));
    return Shifted<kOffset>(grid, EvenSignBytes(LoadU32(p + 4)));
  }
};

struct TypeIQ2_XS : CodebookType {
  static constexpr uint32_t kBytes = 74;
  static constexpr bool kFine = true;
  static constexpr int kAcc = 1, kOffset = 43;
  static __m256 Scale(const uint8_t* b, uint64_t s) { return ScaledHalves(b, s, 0.125f); }
  static Head ReadHead(const uint8_t* b) { return HeadPer16<kOffset>(OddNibbles(Load64(b + 66))); }
  static __m256i Quants(const uint8_t* b, int g) {
    uint64_t w;
    __builtin_memcpy(&w, b + 2 + 8 * g, 8);
    const auto* t = quant::kGridIq2Xs;
    const uint64_t* s = kSignTable.bytes;
    const __m256i grid = FourWords(Entry8(t, w & 511), Entry8(t, w >> 16 & 511),
                                   Entry8(t, w >> 32 & 511), Entry8(t, w >> 48 & 511));
    const __m256i signs =
        FourWords(s[w >> 9 & 127], s[w >> 25 & 127], s[w >> 41 & 127], s[w >> 57]);
    return Shifted<kOffset>(grid, signs);
  }
};

struct TypeIQ2_S : CodebookType {
  static constexpr uint32_t kBytes = 82;
  static constexpr bool kFine = true;
  static constexpr int kAcc = 1, kOffset = 43;
  static __m256 Scale(const uint8_t* b, uint64_t s) { return ScaledHalves(b, s, 0.125f); }
  static Head ReadHead(const uint8_t* b) { return HeadPer16<kOffset>(OddNibbles(Load64(b + 74))); }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint8_t* p = b + 2 + 4 * g;
    const uint32_t h = b[66 + g];
    const auto* t = quant::kGridIq2S;
    const __m256i grid =
        FourWords(Entry8(t, p[0] | (h << 8 & 0x300)), Entry8(t, p[1] | (h << 6 & 0x300)),
                  Entry8(t, p[2] | (h << 4 & 0x300)), Entry8(t, p[3] | (h << 2 & 0x300)));
    return Shifted<kOffset>(grid, SignBytes(b + 34 + 4 * g));
  }
};

struct TypeIQ3_XXS : CodebookType {
  static constexpr uint32_t kBytes = 98;
  static constexpr bool kFine = false;
  static constexpr int kAcc = 1, kOffset = 62;
  static __m256 Scale(const uint8_t* b, uint64_t s) { return ScaledHalves(b, s, 0.25f); }
  static Head ReadHead(const uint8_t* b) { return HeadPer32<kOffset>(OddTops(Load256(b + 66))); }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint8_t* p = b + 2 + 8 * g;
    const auto* t = quant::kGridIq3Xxs;
    const __m256i grid =
        _mm256_setr_epi32(Entry4(t, p[0]), Entry4(t, p[1]), Entry4(t, p[2]), Entry4(t, p[3]),
                          Entry4(t, p[4]), Entry4(t, p[5]), Entry4(t, p[6]), Entry4(t, p[7]));
    return Shifted<kOffset>(grid, EvenSignBytes(LoadU32(b + 66 + 4 * g)));
  }
};

struct TypeIQ3_S : CodebookType {
  static constexpr uint32_t kBytes = 110, kScaleAt = 0;
  static constexpr bool kFine = false;
  static constexpr int kAcc = 4, kOffset = 15;
  static Head ReadHead(const uint8_t* b) {
    return HeadPer32<kOffset>(_mm_cvtepu8_epi16(OddNibbles(_mm_cvtsi32_si128(LoadI32(b + 106)))));
  }
  static uint32_t Index(const uint8_t* p, uint32_t h, int k) {
    return p[k] | (h << (8 - k) & 0x100);
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint8_t* p = b + 2 + 8 * g;
    const uint32_t h = b[66 + g];
    const auto* t = quant::kGridIq3S;
    const __m256i grid = _mm256_setr_epi32(Entry4(t, Index(p, h, 0)), Entry4(t, Index(p, h, 1)),
                                           Entry4(t, Index(p, h, 2)), Entry4(t, Index(p, h, 3)),
                                           Entry4(t, Index(p, h, 4)), Entry4(t, Index(p, h, 5)),
                                           Entry4(t, Index(p, h, 6)), Entry4(t, Index(p, h, 7)));
    return Shifted<kOffset>(grid, SignBytes(b + 74 + 4 * g));
  }
};

// 8 * grid of IQ1 for four entries; bits 8 to 10 of i0.. are the upper ones of the indices.
inline __m256i Iq1Grid(const uint8_t* p, uint32_t i0, uint32_t i1, uint32_t i2, uint32_t i3) {
  const auto* t = quant::kGridIq1;
  const __m256i grid = FourWords(Entry8(t, p[0] | (i0 & 0x700)), Entry8(t, p[1] | (i1 & 0x700)),
                                 Entry8(t, p[2] | (i2 & 0x700)), Entry8(t, p[3] | (i3 & 0x700)));
  return _mm256_and_si256(_mm256_slli_epi16(grid, 3), _mm256_set1_epi8(static_cast<char>(0xf8)));
}

struct TypeIQ1_S : CodebookType {
  static constexpr uint32_t kBytes = 50;
  static constexpr bool kFine = false;
  static constexpr int kAcc = 4, kOffset = 9;
  static __m256 Scale(const uint8_t* b, uint64_t s) { return ScaledHalves(b, s, 0.125f); }
  static Head ReadHead(const uint8_t* b) {
    const __m128i step = _mm_and_si128(_mm_srli_epi16(Load128(b + 34), 12), _mm_set1_epi16(7));
    return HeadPer32<kOffset>(Odd16(step));
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint32_t w = LoadU16(b + 34 + 2 * g);
    const __m256i grid = Iq1Grid(b + 2 + 4 * g, w << 8, w << 5, w << 2, w >> 1);
    const int shift = kOffset + 1 - static_cast<int>(w >> 14 & 2);
    return _mm256_add_epi8(grid, _mm256_set1_epi8(static_cast<char>(shift)));
  }
};

struct TypeIQ1_M : CodebookType {
  static constexpr uint32_t kBytes = 56;
  static constexpr bool kFine = true;
  static constexpr int kAcc = 4, kOffset = 9;
  // The half lies in the top nibbles of the four scale words.
  static __m256 Scale(const uint8_t* b, uint64_t stride) {
    uint16_t halves[8];
    for (int r = 0; r < 8; ++r) {
      uint64_t w;
      __builtin_memcpy(&w, b + uint64_t(r) * stride + 48, 8);
      halves[r] = static_cast<uint16_t>((w >> 12 & 0xf) | (w >> 24 & 0xf0) | (w >> 36 & 0xf00) |
                                        (w >> 48 & 0xf000));
    }
    return _mm256_mul_ps(_mm256_cvtph_ps(Load128(halves)), _mm256_set1_ps(0.125f));
  }
  static Head ReadHead(const uint8_t* b) {
    const __m256i pick = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4,
                                          5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i words = _mm256_shuffle_epi8(BothLanes(Load64(b + 48)), pick);
    // Brings bits 3 i .. 3 i + 2 to the top.
    const __m256i up = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0010'0080'0400'2000ll));
    const __m256i step = _mm256_srli_epi16(up, 13);
    const __m128i bytes = _mm_packus_epi16(LowLane(step), HighLane(step));
    return HeadPer16<kOffset>(_mm_add_epi8(_mm_add_epi8(bytes, bytes), _mm_set1_epi8(1)));
  }
  static __m256i Quants(const uint8_t* b, int g) {
    const uint32_t w = LoadU16(b + 32 + 2 * g);
    const __m256i grid = Iq1Grid(b + 4 * g, w << 8, w << 4, w, w >> 4);
    const __m256i bit = FourWords(0x0008000800080008ull, 0x0080008000800080ull,
                                  0x0800080008000800ull, 0x8000800080008000ull);
    const __m256i set = _mm256_set1_epi16(static_cast<int16_t>(w));
    const __m256i minus = _mm256_cmpeq_epi16(_mm256_and_si256(set, bit), bit);
    const __m256i two = _mm256_and_si256(minus, _mm256_set1_epi8(2));
    return _mm256_add_epi8(grid, _mm256_sub_epi8(_mm256_set1_epi8(kOffset + 1), two));
  }
};

}  // namespace
}  // namespace sluice
