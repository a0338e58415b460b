// How NEON reads the weight types.
//
// Contract: each type gives
//   kElems, kBytes     of a block
//   kGroup             elements that share an integer scale: 16, 32, or kElems where there is none
//   kMin               a second scale (M) multiplies the activation sums; kMinGroup: elements per
//                      integer min (kElems = 256 only)
//   ReadHead(b)        the integer scales, and mins where kMin
//   Quants<g>(b, q)    the 32 quants of group g in element order, signed, offsets taken off
//   D / M(b, stride)   the float scales of four blocks of four rows, one per lane
// Only the block's own bytes are read. See scalar/int_block.h for what is computed.
#pragma once

#include "kernels/neon/simd.h"

namespace sluice {
namespace {

struct Head {
  int16x8_t s[2], n[2];
};

// 16 bytes of nibbles: the low ones, then the high ones.
inline void Nibbles(const uint8_t* p, uint8x16_t* q) {
  const uint8x16_t v = LoadU8(p);
  q[0] = vandq_u8(v, vdupq_n_u8(15));
  q[1] = vshrq_n_u8(v, 4);
}

template <int kOffset>
inline void TakeOff(const uint8x16_t* v, int8x16_t* q) {
  for (int i = 0; i < 2; ++i) {
    q[i] = kOffset == 0 ? AsSigned(v[i]) : vsubq_s8(AsSigned(v[i]), vdupq_n_s8(kOffset));
  }
}

inline void TableNibbles(const uint8_t* p, int8x16_t table, int8x16_t* q) {
  uint8x16_t v[2];
  Nibbles(p, v);
  for (int i = 0; i < 2; ++i) q[i] = vqtbl1q_s8(table, v[i]);
}

inline int8x16_t Iq4Table() {
  static constexpr int8_t kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  return vld1q_s8(kTable);
}

// Bits 0..31 to bytes: all ones where set.
inline void BitMasks(const uint8_t* p, uint8x16_t* out) {
  static constexpr uint8_t kByte[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                        2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(LoadU32(p))), bit = vld1q_u8(kBit);
  for (int i = 0; i < 2; ++i) {
    out[i] = vtstq_u8(vqtbl1q_u8(bytes, vld1q_u8(kByte + 16 * i)), bit);
  }
}

// 32-element types.
struct Legacy {
  static constexpr int kElems = 32, kGroup = 32, kMinGroup = 32;
  static constexpr bool kMin = false;
  static Head ReadHead(const uint8_t*) { return {}; }
  static float32x4_t D(const uint8_t* b, uint64_t stride) { return Halves4(b, stride); }
  static float32x4_t M(const uint8_t* b, uint64_t stride) { return Halves4(b + 2, stride); }
};

struct TypeQ4_0 : Legacy {
  static constexpr uint32_t kBytes = 18;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    Nibbles(b + 2, v);
    TakeOff<8>(v, q);
  }
};

struct TypeQ4_1 : Legacy {
  static constexpr uint32_t kBytes = 20;
  static constexpr bool kMin = true;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    Nibbles(b + 4, v);
    TakeOff<0>(v, q);
  }
};

template <int kOffset>
inline void FiveBits(const uint8_t* bits, const uint8_t* nibbles, int8x16_t* q) {
  uint8x16_t v[2], high[2];
  Nibbles(nibbles, v);
  BitMasks(bits, high);
  for (int i = 0; i < 2; ++i) v[i] = vorrq_u8(v[i], vandq_u8(high[i], vdupq_n_u8(16)));
  TakeOff<kOffset>(v, q);
}

struct TypeQ5_0 : Legacy {
  static constexpr uint32_t kBytes = 22;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    FiveBits<16>(b + 2, b + 6, q);
  }
};

struct TypeQ5_1 : Legacy {
  static constexpr uint32_t kBytes = 24;
  static constexpr bool kMin = true;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    FiveBits<0>(b + 4, b + 8, q);
  }
};

struct TypeQ8_0 : Legacy {
  static constexpr uint32_t kBytes = 34;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    for (int i = 0; i < 2; ++i) q[i] = AsSigned(LoadU8(b + 2 + 16 * i));
  }
};

struct TypeIQ4_NL : Legacy {
  static constexpr uint32_t kBytes = 18;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    TableNibbles(b + 2, Iq4Table(), q);
  }
};

struct TypeMXFP4 : Legacy {
  static constexpr uint32_t kBytes = 17;
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    // E2M1 doubled, so that all values are integers.
    static constexpr int8_t kTable[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    TableNibbles(b + 1, vld1q_s8(kTable), q);
  }
  // 2^(e - 128): the float with exponent field e - 1, or a subnormal for e = 0 and 1.
  static float32x4_t D(const uint8_t* b, uint64_t stride) {
    uint32_t bits[4];
    for (int r = 0; r < 4; ++r) {
      const uint32_t e = b[uint64_t(r) * stride];
      bits[r] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    }
    return vreinterpretq_f32_u32(vld1q_u32(bits));
  }
};

// 256-element types.
template <uint32_t kBlockBytes, uint32_t kScaleAt, int kScaleGroup>
struct Super {
  static constexpr int kElems = 256, kGroup = kScaleGroup, kMinGroup = 32;
  static constexpr uint32_t kBytes = kBlockBytes;
  static constexpr bool kMin = false;
  static Head ReadHead(const uint8_t*) { return {}; }
  static float32x4_t D(const uint8_t* b, uint64_t stride) { return Halves4(b + kScaleAt, stride); }
  static float32x4_t M(const uint8_t* b, uint64_t stride) {
    return vnegq_f32(Halves4(b + kScaleAt + 2, stride));
  }
};

inline int16x8_t WidenUnsigned(uint8x8_t v) { return vreinterpretq_s16_u16(vmovl_u8(v)); }

// The twelve bytes a[4] b[4] c[4] hold eight 6-bit scales and eight mins:
// scales a & 63, (c & 15) | (a >> 6) << 4; mins b & 63, (c >> 4) | (b >> 6) << 4.
inline Head ReadScalesMins(const uint8_t* p) {
  const uint32_t a = LoadU32(p), b = LoadU32(p + 4), c = LoadU32(p + 8);
  const uint32_t s = (c & 0x0f0f0f0fu) | ((a >> 6) & 0x03030303u) << 4;
  const uint32_t n = ((c >> 4) & 0x0f0f0f0fu) | ((b >> 6) & 0x03030303u) << 4;
  Head head = {};
  head.s[0] = WidenUnsigned(vcreate_u8((a & 0x3f3f3f3fu) | uint64_t{s} << 32));
  head.n[0] = WidenUnsigned(vcreate_u8((b & 0x3f3f3f3fu) | uint64_t{n} << 32));
  return head;
}

template <int kG>
inline void FourBits(const uint8_t* qs, uint8x16_t* v) {
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t both = LoadU8(qs + 32 * (kG / 2) + 16 * i);
    v[i] = kG % 2 ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
  }
}

// Two bits per quant: 128 elements in 32 bytes.
template <int kG>
inline void TwoBits(const uint8_t* qs, uint8x16_t* v) {
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t all = LoadU8(qs + 32 * (kG / 4) + 16 * i);
    v[i] = vandq_u8(ShiftRight<2 * (kG % 4)>(all), vdupq_n_u8(3));
  }
}

struct TypeQ4_K : Super<144, 0, 32> {
  static constexpr bool kMin = true;
  static Head ReadHead(const uint8_t* b) { return ReadScalesMins(b + 4); }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    FourBits<kG>(b + 16, v);
    TakeOff<0>(v, q);
  }
};

struct TypeQ5_K : Super<176, 0, 32> {
  static constexpr bool kMin = true;
  static Head ReadHead(const uint8_t* b) { return ReadScalesMins(b + 4); }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    FourBits<kG>(b + 48, v);
    for (int i = 0; i < 2; ++i) v[i] = vorrq_u8(v[i], MoveBit<kG, 4>(LoadU8(b + 16 + 16 * i)));
    TakeOff<0>(v, q);
  }
};

struct TypeQ2_K : Super<84, 80, 16> {
  static constexpr bool kMin = true;
  static constexpr int kMinGroup = 16;
  static Head ReadHead(const uint8_t* b) {
    uint8x16_t v[2];
    Nibbles(b, v);
    return {{WidenUnsigned(vget_low_u8(v[0])), WidenUnsigned(vget_high_u8(v[0]))},
            {WidenUnsigned(vget_low_u8(v[1])), WidenUnsigned(vget_high_u8(v[1]))}};
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    TwoBits<kG>(b + 16, v);
    TakeOff<0>(v, q);
  }
};

struct TypeQ3_K : Super<110, 108, 16> {
  static Head ReadHead(const uint8_t* b) {
    const uint32_t low0 = LoadU32(b + 96), low1 = LoadU32(b + 100), high = LoadU32(b + 104);
    const uint32_t mask4 = 0x0f0f0f0fu, mask2 = 0x03030303u;
    const uint32_t words[4] = {(low0 & mask4) | (high & mask2) << 4,
                               (low1 & mask4) | (high >> 2 & mask2) << 4,
                               (low0 >> 4 & mask4) | (high >> 4 & mask2) << 4,
                               (low1 >> 4 & mask4) | (high >> 6 & mask2) << 4};
    const uint8x16_t all = vreinterpretq_u8_u32(vld1q_u32(words));
    const int8x16_t s = vsubq_s8(AsSigned(all), vdupq_n_s8(32));
    return {{vmovl_s8(vget_low_s8(s)), vmovl_s8(vget_high_s8(s))}, {}};
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    TwoBits<kG>(b + 32, v);
    for (int i = 0; i < 2; ++i) v[i] = vorrq_u8(v[i], MoveBit<kG, 2>(LoadU8(b + 16 * i)));
    TakeOff<4>(v, q);
  }
};

struct TypeQ6_K : Super<210, 208, 16> {
  static Head ReadHead(const uint8_t* b) {
    const int8x16_t s = AsSigned(LoadU8(b + 192));
    return {{vmovl_s8(vget_low_s8(s)), vmovl_s8(vget_high_s8(s))}, {}};
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    constexpr int kHalf = kG / 4, kJ = kG % 4;
    uint8x16_t v[2];
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t ql = LoadU8(b + 64 * kHalf + 32 * (kJ & 1) + 16 * i);
      const uint8x16_t qh = LoadU8(b + 128 + 32 * kHalf + 16 * i);
      const uint8x16_t low = kJ >= 2 ? vshrq_n_u8(ql, 4) : vandq_u8(ql, vdupq_n_u8(15));
      const uint8x16_t two = vandq_u8(ShiftRight<2 * kJ>(qh), vdupq_n_u8(3));
      v[i] = vorrq_u8(low, vshlq_n_u8(two, 4));
    }
    TakeOff<32>(v, q);
  }
};

struct TypeIQ4_XS : Super<136, 0, 32> {
  static Head ReadHead(const uint8_t* b) {
    const uint32_t low = LoadU32(b + 4), high = LoadU16(b + 2);
    int16_t s[8];
    for (int g = 0; g < 8; ++g) {
      s[g] = static_cast<int16_t>(((low >> (4 * g) & 15) | (high >> (2 * g) & 3) << 4) - 32);
    }
    return {{vld1q_s16(s), vdupq_n_s16(0)}, {}};
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    TableNibbles(b + 8 + 16 * kG, Iq4Table(), q);
  }
};

// Base-3 digits to -1, 0, 1: bytes times a power of three (modulo 256) bring a digit to the top.
inline int8x16_t Trits(uint8x16_t bytes, uint8x16_t power) {
  const uint8x16_t v = vmulq_u8(bytes, power);
  const uint8x16_t none = vcltq_u8(v, vdupq_n_u8(86)), two = vcgeq_u8(v, vdupq_n_u8(171));
  return vsubq_s8(AsSigned(none), AsSigned(two));
}

// Five digits per byte: 32 bytes, then 16, then four of which four digits count.
struct TypeTQ1_0 : Super<54, 52, 256> {
  static constexpr uint8_t kPower[5] = {1, 3, 9, 27, 81};
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    Unrolled<2>([&](auto i) {
      constexpr int kRun = 2 * kG + i.value;  // of 16 elements
      if constexpr (kRun < 10) {
        q[i.value] = Trits(LoadU8(b + 16 * i.value), vdupq_n_u8(kPower[kG]));
      } else if constexpr (kRun < 15) {
        q[i.value] = Trits(LoadU8(b + 32), vdupq_n_u8(kPower[kRun - 10]));
      } else {
        static constexpr uint32_t kDigits[4] = {0x01010101u, 0x03030303u, 0x09090909u, 0x1b1b1b1bu};
        const uint8x16_t four = vreinterpretq_u8_u32(vdupq_n_u32(LoadU32(b + 48)));
        const uint8x16_t powers = vreinterpretq_u8_u32(vld1q_u32(kDigits));
        q[i.value] = Trits(four, powers);
      }
    });
  }
};

struct TypeTQ2_0 : Super<66, 64, 256> {
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    uint8x16_t v[2];
    TwoBits<kG>(b, v);
    TakeOff<1>(v, q);
  }
};

}  // namespace
}  // namespace sluice
