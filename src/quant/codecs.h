// The decoder and encoder of every weight type: what types.cc puts in its table. Private to this
// room.
//
// Contract: n is a multiple of the type's block (the caller checked), pointers need no alignment,
// no allocation, thread-safe. A decoder evaluates in float32, products in the order
// docs/weight-types.md gives. An encoder gets finite input only (F32, F16, BF16: any) and returns
// false when a block's scale does not fit a half; `importance` may be null.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "quant/types.h"

namespace sluice::quant {

static_assert(std::endian::native == std::endian::little, "blocks are little-endian");

using DecodeFn = void (*)(const uint8_t* blocks, float* out, uint64_t n);
using EncodeFn = bool (*)(const float* in, const float* importance, uint8_t* blocks, uint64_t n);

inline constexpr int kSmallBlock = 32;   // elements in a block of the legacy types, IQ4_NL, MXFP4
inline constexpr int kSuperBlock = 256;  // elements in a block of the others

// The 16 values of IQ4_NL and IQ4_XS, and those of MXFP4 (twice E2M1; the scale is halved for it).
inline constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr float kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void StoreU16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }
inline void StoreU32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }
inline float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }

// Stores round-to-nearest-even; false when the value overflows a half.
inline bool StoreHalf(uint8_t* p, float value) {
  const uint16_t bits = FloatToHalf(value);
  StoreU16(p, bits);
  return (bits & 0x7C00) != 0x7C00;
}

// 2^(e - 128) as MXFP4 means it: e = 0 and 1 are float32 subnormals, built from bits.
inline float Mxfp4Scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : uint32_t{e - 1u} << 23);
}

#define SLUICE_DECODER(name) void Decode##name(const uint8_t* blocks, float* out, uint64_t n)
#define SLUICE_ENCODER(name) \
  bool Encode##name(const float* in, const float* importance, uint8_t* blocks, uint64_t n)

SLUICE_DECODER(F32);
SLUICE_DECODER(F16);
SLUICE_DECODER(BF16);
SLUICE_DECODER(Q4_0);
SLUICE_DECODER(Q4_1);
SLUICE_DECODER(Q5_0);
SLUICE_DECODER(Q5_1);
SLUICE_DECODER(Q8_0);
SLUICE_DECODER(Q2_K);
SLUICE_DECODER(Q3_K);
SLUICE_DECODER(Q4_K);
SLUICE_DECODER(Q5_K);
SLUICE_DECODER(Q6_K);
SLUICE_DECODER(IQ4_NL);
SLUICE_DECODER(IQ4_XS);
SLUICE_DECODER(MXFP4);
SLUICE_DECODER(TQ1_0);
SLUICE_DECODER(TQ2_0);

// Defined under SLUICE_CODEBOOKS only.
SLUICE_DECODER(IQ1_S);
SLUICE_DECODER(IQ1_M);
SLUICE_DECODER(IQ2_XXS);
SLUICE_DECODER(IQ2_XS);
SLUICE_DECODER(IQ2_S);
SLUICE_DECODER(IQ3_XXS);
SLUICE_DECODER(IQ3_S);

SLUICE_ENCODER(F32);
SLUICE_ENCODER(F16);
SLUICE_ENCODER(BF16);
SLUICE_ENCODER(Q4_0);
SLUICE_ENCODER(Q4_1);
SLUICE_ENCODER(Q5_0);
SLUICE_ENCODER(Q5_1);
SLUICE_ENCODER(Q8_0);
SLUICE_ENCODER(Q2_K);
SLUICE_ENCODER(Q3_K);
SLUICE_ENCODER(Q4_K);
SLUICE_ENCODER(Q5_K);
SLUICE_ENCODER(Q6_K);
SLUICE_ENCODER(IQ4_NL);
SLUICE_ENCODER(IQ4_XS);
SLUICE_ENCODER(MXFP4);
SLUICE_ENCODER(TQ1_0);
SLUICE_ENCODER(TQ2_0);

}  // namespace sluice::quant
