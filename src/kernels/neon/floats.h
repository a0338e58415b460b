// Eight floats as a pair of vectors, how eight elements of a row become that, and the exponential.
//
// Contract: Exp: relative error below 1.2e-7 (2 ulp) for -87.3 <= x <= 88; 0 below, about 1.65e38
// above; NaN passes. A row class gives At(row, i): elements i .. i + 7 (i a multiple of 8). Unnamed
// namespace: see simd.h.
#pragma once

#include "kernels/kv_row.h"
#include "kernels/neon/simd.h"

namespace sluice {
namespace {

struct F8 {
  float32x4_t low, high;
};

inline F8 Zero8() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
inline F8 LoadF8(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline void StoreF8(float* p, F8 v) {
  vst1q_f32(p, v.low);
  vst1q_f32(p + 4, v.high);
}
inline F8 Fuse(F8 acc, F8 a, F8 b) {
  return {vfmaq_f32(acc.low, a.low, b.low), vfmaq_f32(acc.high, a.high, b.high)};
}
inline F8 FuseScalar(F8 acc, F8 a, float s) {
  return {vfmaq_n_f32(acc.low, a.low, s), vfmaq_n_f32(acc.high, a.high, s)};
}
inline F8 Times(F8 a, float s) { return {vmulq_n_f32(a.low, s), vmulq_n_f32(a.high, s)}; }
inline float Fold(F8 v) { return FoldFloats(v.low, v.high); }

inline F8 FromInt8(int8x8_t q) {
  const int16x8_t v = vmovl_s8(q);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v))};
}

struct RowF32 {
  static F8 At(const uint8_t* row, uint32_t i) {
    const uint8_t* p = row + 4 * uint64_t{i};
    return {vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
  }
};
struct RowF16 {
  static F8 At(const uint8_t* row, uint32_t i) {
    const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(row + 2 * uint64_t{i}));
    return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
  }
};
struct RowBF16 {
  static F8 At(const uint8_t* row, uint32_t i) {
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(row + 2 * uint64_t{i}));
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
  }
};
struct RowQ8 {
  static F8 At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ8Block);
    const uint8x8_t q = vld1_u8(block + 2 + i % kKvBlockElems);
    return Times(FromInt8(vreinterpret_s8_u8(q)), HalfAt(block));
  }
};
struct RowQ4 {
  static F8 At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ4Block);
    const uint8x8_t bytes = vld1_u8(block + 4 + i % 16);
    const uint8x8_t q =
        i % kKvBlockElems < 16 ? vand_u8(bytes, vdup_n_u8(15)) : vshr_n_u8(bytes, 4);
    const F8 v = Times(FromInt8(vreinterpret_s8_u8(q)), HalfAt(block));
    const float32x4_t min = vdupq_n_f32(HalfAt(block + 2));
    return {vaddq_f32(min, v.low), vaddq_f32(min, v.high)};
  }
};

// e^x = 2^n e^r with n = round(x / ln 2); e^r by a degree-6 polynomial on |r| <= ln(2) / 2 (the
// classic single-precision coefficients of the Cephes library's expf).
inline float32x4_t Exp(float32x4_t x) {
  const float32x4_t least = vdupq_n_f32(-87.33654f);
  const uint32x4_t below = vcltq_f32(x, least);  // false for NaN
  const float32x4_t in = vminq_f32(vdupq_n_f32(88.0f), vmaxq_f32(least, x));
  const float32x4_t n = vrndnq_f32(vmulq_n_f32(in, 1.44269504088896341f));
  float32x4_t r = vfmsq_f32(in, n, vdupq_n_f32(0.693359375f));
  r = vfmsq_f32(r, n, vdupq_n_f32(-2.12194440e-4f));
  float32x4_t p = vdupq_n_f32(1.9875691500e-4f);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1f), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1f), p, r);
  p = vfmaq_f32(vaddq_f32(r, vdupq_n_f32(1.0f)), vmulq_f32(r, r), p);
  const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
  const float32x4_t e = vmulq_f32(p, vreinterpretq_f32_s32(power));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(e), below));
}

// 1 / (1 + e^-x).
inline float32x4_t Sigmoid(float32x4_t x) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  return vdivq_f32(one, vaddq_f32(one, Exp(vnegq_f32(x))));
}

}  // namespace
}  // namespace sluice
