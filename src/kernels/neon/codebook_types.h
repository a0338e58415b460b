// How NEON reads the IQ1, IQ2 and IQ3 types.
//
// Contract: as types.h. An index fetches four or eight grid values at once, signs multiply them.
// For what the integers mean see scalar/int_codebook.h. Only under SLUICE_CODEBOOKS.
#pragma once

#include "kernels/neon/types.h"
#include "kernels/simd/signs.h"
#include "quant/codebooks.h"

namespace sluice {
namespace {

inline uint64_t LoadU64(const uint8_t* p) {
  uint64_t v;
  __builtin_memcpy(&v, p, 8);
  return v;
}

inline int8x16_t TwoEntries(const int8_t (*grid)[8], uint32_t a, uint32_t b) {
  return vcombine_s8(vld1_s8(grid[a]), vld1_s8(grid[b]));
}

// Entries meet in general registers: an insertion into a vector needs an address of its own.
inline int8x16_t FourEntries(const int8_t (*grid)[4], uint32_t a, uint32_t b, uint32_t c,
                             uint32_t d) {
  const auto entry = [=](uint32_t i) {
    uint32_t v;
    __builtin_memcpy(&v, grid[i], 4);
    return uint64_t{v};
  };
  return vreinterpretq_s8_u64(
      vcombine_u64(vcreate_u64(entry(a) | entry(b) << 32), vcreate_u64(entry(c) | entry(d) << 32)));
}

// Signs as factors: of 16 elements, seven bits for eight.
inline int8x16_t EvenSigns(uint32_t first, uint32_t second) {
  return vreinterpretq_s8_u64(
      vcombine_u64(vcreate_u64(kSignTable.bytes[first]), vcreate_u64(kSignTable.bytes[second])));
}

// Signs of 32 elements, a bit each.
inline void BitSigns(const uint8_t* p, int8x16_t* signs) {
  uint8x16_t minus[2];
  BitMasks(p, minus);
  for (int i = 0; i < 2; ++i) {
    signs[i] = vreinterpretq_s8_u8(vorrq_u8(minus[i], vdupq_n_u8(1)));
  }
}

// 2 s + 1 of the top four bits of eight words.
inline Head OddTops(uint8x16_t low, uint8x16_t high) {
  const uint16x4_t a = vmovn_u32(vshrq_n_u32(vreinterpretq_u32_u8(low), 27));
  const uint16x8_t twice = vmovn_high_u32(a, vshrq_n_u32(vreinterpretq_u32_u8(high), 27));
  Head head = {};
  head.s[0] = vreinterpretq_s16_u16(vorrq_u16(twice, vdupq_n_u16(1)));
  return head;
}

// 2 s + 1 of the nibbles of eight bytes, low ones first.
inline Head OddNibbles(uint8x8_t bytes) {
  const uint8x8_t low = vand_u8(bytes, vdup_n_u8(15)), high = vshr_n_u8(bytes, 4);
  const uint8x8_t s[2] = {vzip1_u8(low, high), vzip2_u8(low, high)};
  Head head = {};
  for (int i = 0; i < 2; ++i) {
    head.s[i] = vreinterpretq_s16_u16(vorrq_u16(vshll_n_u8(s[i], 1), vdupq_n_u16(1)));
  }
  return head;
}

// kEighths: what is left of the format's own fractions.
template <uint32_t kBlockBytes, int kScaleGroup, int kEighths>
struct Codebook : Super<kBlockBytes, 0, kScaleGroup> {
  static float32x4_t D(const uint8_t* b, uint64_t stride) {
    return vmulq_n_f32(Halves4(b, stride), kEighths * 0.125f);
  }
};

struct TypeIQ2_XXS : Codebook<66, 32, 1> {
  static Head ReadHead(const uint8_t* b) {
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(LoadU8(b + 2 + 16 * i));
    return OddTops(vreinterpretq_u8_u32(vuzp2q_u32(w[0], w[1])),
                   vreinterpretq_u8_u32(vuzp2q_u32(w[2], w[3])));
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint8_t* p = b + 2 + 8 * kG;
    const uint32_t bits = LoadU32(p + 4);
    const auto* t = quant::kGridIq2Xxs;
    q[0] = vmulq_s8(TwoEntries(t, p[0], p[1]), EvenSigns(bits & 127, bits >> 7 & 127));
    q[1] = vmulq_s8(TwoEntries(t, p[2], p[3]), EvenSigns(bits >> 14 & 127, bits >> 21 & 127));
  }
};

struct TypeIQ2_XS : Codebook<74, 16, 1> {
  static Head ReadHead(const uint8_t* b) { return OddNibbles(vld1_u8(b + 66)); }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint64_t w = LoadU64(b + 2 + 8 * kG);
    const auto* t = quant::kGridIq2Xs;
    q[0] = vmulq_s8(TwoEntries(t, w & 511, w >> 16 & 511), EvenSigns(w >> 9 & 127, w >> 25 & 127));
    q[1] = vmulq_s8(TwoEntries(t, w >> 32 & 511, w >> 48 & 511), EvenSigns(w >> 41 & 127, w >> 57));
  }
};

struct TypeIQ2_S : Codebook<82, 16, 1> {
  static Head ReadHead(const uint8_t* b) { return OddNibbles(vld1_u8(b + 74)); }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint8_t* p = b + 2 + 4 * kG;
    const uint32_t h = b[66 + kG];
    const auto* t = quant::kGridIq2S;
    int8x16_t signs[2];
    BitSigns(b + 34 + 4 * kG, signs);
    q[0] = vmulq_s8(TwoEntries(t, p[0] | (h << 8 & 0x300), p[1] | (h << 6 & 0x300)), signs[0]);
    q[1] = vmulq_s8(TwoEntries(t, p[2] | (h << 4 & 0x300), p[3] | (h << 2 & 0x300)), signs[1]);
  }
};

struct TypeIQ3_XXS : Codebook<98, 32, 2> {
  static Head ReadHead(const uint8_t* b) { return OddTops(LoadU8(b + 66), LoadU8(b + 82)); }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint8_t* p = b + 2 + 8 * kG;
    const uint32_t bits = LoadU32(b + 66 + 4 * kG);
    const auto* t = quant::kGridIq3Xxs;
    q[0] = vmulq_s8(FourEntries(t, p[0], p[1], p[2], p[3]), EvenSigns(bits & 127, bits >> 7 & 127));
    q[1] = vmulq_s8(FourEntries(t, p[4], p[5], p[6], p[7]),
                    EvenSigns(bits >> 14 & 127, bits >> 21 & 127));
  }
};

struct TypeIQ3_S : Codebook<110, 32, 8> {
  static Head ReadHead(const uint8_t* b) { return OddNibbles(vcreate_u8(LoadU32(b + 106))); }
  // Eight indices: bytes, and the ninth bits beside each other.
  static uint64x2_t Indices(const uint8_t* p, uint8_t high) {
    static constexpr uint16_t kBit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t set = vtstq_u16(vdupq_n_u16(high), vld1q_u16(kBit));
    return vreinterpretq_u64_u16(vorrq_u16(vmovl_u8(vld1_u8(p)), vandq_u16(set, vdupq_n_u16(256))));
  }
  static int8x16_t Entries(uint64_t i) {
    return FourEntries(quant::kGridIq3S, i & 0xffff, i >> 16 & 0xffff, i >> 32 & 0xffff, i >> 48);
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint64x2_t i = Indices(b + 2 + 8 * kG, b[66 + kG]);
    int8x16_t signs[2];
    BitSigns(b + 74 + 4 * kG, signs);
    q[0] = vmulq_s8(Entries(vgetq_lane_u64(i, 0)), signs[0]);
    q[1] = vmulq_s8(Entries(vgetq_lane_u64(i, 1)), signs[1]);
  }
};

// IQ1: 8 * grid plus or minus one; the upper three bits of the indices of p[0] and p[1] are bits 8
// to 10 of i and j.
inline int8x16_t Iq1Quants(const uint8_t* p, uint32_t i, uint32_t j, int8x16_t shift) {
  const int8x16_t grid = TwoEntries(quant::kGridIq1, p[0] | (i & 0x700), p[1] | (j & 0x700));
  return vaddq_s8(vshlq_n_s8(grid, 3), shift);
}

struct TypeIQ1_S : Codebook<50, 32, 1> {
  static Head ReadHead(const uint8_t* b) {
    const uint16x8_t w = vreinterpretq_u16_u8(LoadU8(b + 34));
    const uint16x8_t twice = vandq_u16(vshrq_n_u16(w, 11), vdupq_n_u16(14));
    Head head = {};
    head.s[0] = vreinterpretq_s16_u16(vorrq_u16(twice, vdupq_n_u16(1)));
    return head;
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint8_t* p = b + 2 + 4 * kG;
    const uint32_t w = LoadU16(b + 34 + 2 * kG);
    const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(1 - static_cast<int>(w >> 14 & 2)));
    q[0] = Iq1Quants(p, w << 8, w << 5, shift);
    q[1] = Iq1Quants(p + 2, w << 2, w >> 1, shift);
  }
};

struct TypeIQ1_M : Codebook<56, 16, 1> {
  // The half lies in the top nibbles of the four scale words.
  static float32x4_t D(const uint8_t* b, uint64_t stride) {
    uint64_t halves = 0;
    for (int r = 0; r < 4; ++r) {
      const uint64_t w = LoadU64(b + uint64_t(r) * stride + 48);
      halves |= ((w >> 12 & 0xf) | (w >> 24 & 0xf0) | (w >> 36 & 0xf00) | (w >> 48 & 0xf000))
                << (16 * r);
    }
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(halves))), 0.125f);
  }
  // Four scales of three bits in each word.
  static Head ReadHead(const uint8_t* b) {
    const uint16x4_t w = vreinterpret_u16_u8(vld1_u8(b + 48));
    const uint16x8_t words[2] = {vcombine_u16(vdup_lane_u16(w, 0), vdup_lane_u16(w, 1)),
                                 vcombine_u16(vdup_lane_u16(w, 2), vdup_lane_u16(w, 3))};
    static constexpr int16_t kLeft[8] = {1, -2, -5, -8, 1, -2, -5, -8};
    const int16x8_t left = vld1q_s16(kLeft);
    Head head = {};
    for (int i = 0; i < 2; ++i) {
      const uint16x8_t twice = vandq_u16(vshlq_u16(words[i], left), vdupq_n_u16(14));
      head.s[i] = vreinterpretq_s16_u16(vorrq_u16(twice, vdupq_n_u16(1)));
    }
    return head;
  }
  // Minus one where bit 3 of an index's nibble is set.
  static int8x16_t Shift(uint32_t first, uint32_t second) {
    const auto of = [](uint32_t set) { return vdup_n_s8(static_cast<int8_t>(set ? -1 : 1)); };
    return vcombine_s8(of(first), of(second));
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const uint8_t* p = b + 4 * kG;
    const uint32_t w = LoadU16(b + 32 + 2 * kG);
    q[0] = Iq1Quants(p, w << 8, w << 4, Shift(w & 0x8, w & 0x80));
    q[1] = Iq1Quants(p + 2, w, w >> 4, Shift(w & 0x800, w & 0x8000));
  }
};

}  // namespace
}  // namespace sluice
