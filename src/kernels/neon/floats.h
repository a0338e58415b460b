// Eight floats in two vectors: the vector type of the aarch64 leaves.
//
// Contract: simd/rows.h says what each function of F32x8 is; F32x4 is half of it. Unnamed
// namespace: see simd.h.
#pragma once

#include "kernels/neon/simd.h"

namespace sluice {
namespace {

struct F32x4 {
  using Vec = float32x4_t;

  static Vec Zero() { return vdupq_n_f32(0); }
  static Vec Same(float v) { return vdupq_n_f32(v); }
  static Vec Add(Vec a, Vec b) { return vaddq_f32(a, b); }
  static Vec Sub(Vec a, Vec b) { return vsubq_f32(a, b); }
  static Vec Mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec Div(Vec a, Vec b) { return vdivq_f32(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
  static Vec Fnma(Vec a, Vec b, Vec c) { return vfmsq_f32(c, a, b); }
  static Vec Min(Vec a, Vec b) { return vminq_f32(a, b); }  // NaN passes
  static Vec Max(Vec a, Vec b) { return vmaxq_f32(a, b); }
  static Vec MaxNumber(Vec a, Vec b) { return vmaxnmq_f32(a, b); }
  static Vec Round(Vec v) { return vrndnq_f32(v); }
  static Vec Pow2(Vec n) {
    const int32x4_t biased = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
  }
  static Vec ZeroBelow(Vec v, Vec x, Vec least) {
    const uint32x4_t below = vcltq_f32(x, least);  // false for NaN
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), below));
  }
};

struct F8 {
  float32x4_t low, high;
};

struct F32x8 {
  using Vec = F8;
  static constexpr uint32_t kLanes = 8, kTokens = 2;
  static constexpr int kRegisters = 16;  // pairs

  static Vec Zero() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
  static Vec Same(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
  static Vec Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static void Store(float* p, Vec v) {
    vst1q_f32(p, v.low);
    vst1q_f32(p + 4, v.high);
  }

  static Vec Add(Vec a, Vec b) { return {F32x4::Add(a.low, b.low), F32x4::Add(a.high, b.high)}; }
  static Vec Sub(Vec a, Vec b) { return {F32x4::Sub(a.low, b.low), F32x4::Sub(a.high, b.high)}; }
  static Vec Mul(Vec a, Vec b) { return {F32x4::Mul(a.low, b.low), F32x4::Mul(a.high, b.high)}; }
  static Vec Div(Vec a, Vec b) { return {F32x4::Div(a.low, b.low), F32x4::Div(a.high, b.high)}; }
  static Vec Fma(Vec a, Vec b, Vec c) {
    return {F32x4::Fma(a.low, b.low, c.low), F32x4::Fma(a.high, b.high, c.high)};
  }
  static Vec Fnma(Vec a, Vec b, Vec c) {
    return {F32x4::Fnma(a.low, b.low, c.low), F32x4::Fnma(a.high, b.high, c.high)};
  }
  static Vec Min(Vec a, Vec b) { return {F32x4::Min(a.low, b.low), F32x4::Min(a.high, b.high)}; }
  static Vec Max(Vec a, Vec b) { return {F32x4::Max(a.low, b.low), F32x4::Max(a.high, b.high)}; }
  static Vec MaxNumber(Vec a, Vec b) {
    return {F32x4::MaxNumber(a.low, b.low), F32x4::MaxNumber(a.high, b.high)};
  }
  static Vec Round(Vec v) { return {F32x4::Round(v.low), F32x4::Round(v.high)}; }
  static Vec Pow2(Vec n) { return {F32x4::Pow2(n.low), F32x4::Pow2(n.high)}; }
  static Vec ZeroBelow(Vec v, Vec x, Vec least) {
    return {F32x4::ZeroBelow(v.low, x.low, least.low),
            F32x4::ZeroBelow(v.high, x.high, least.high)};
  }

  static float First(Vec v) { return vgetq_lane_f32(v.low, 0); }
  static float Sum(Vec v) { return FoldFloats(v.low, v.high); }
  static float Largest(Vec v) { return vmaxnmvq_f32(F32x4::MaxNumber(v.low, v.high)); }

  static Vec F32(const uint8_t* p) {
    return {vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
  }
  static Vec F16(const uint8_t* p) {
    const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(p));
    return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
  }
  static Vec Bf16(const uint8_t* p) {
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(p));
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
  }
  static Vec FromInt8(int8x8_t q) {
    const int16x8_t v = vmovl_s8(q);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v))};
  }
  static Vec I8(const uint8_t* p) { return FromInt8(vreinterpret_s8_u8(vld1_u8(p))); }
  static Vec U4(const uint8_t* p, bool high) {
    const uint8x8_t bytes = vld1_u8(p);
    const uint8x8_t q = high ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15));
    return FromInt8(vreinterpret_s8_u8(q));
  }
  static Vec SameF16(const uint8_t* p) { return Same(HalfAt(p)); }

  // simd/elementwise.h
  static void TurnPairs(float* x, const float* cos, const float* sin) {
    const float32x4x2_t v = vld2q_f32(x);
    const float32x4_t c = vld1q_f32(cos), s = vld1q_f32(sin);
    float32x4x2_t y;
    y.val[0] = vsubq_f32(vmulq_f32(v.val[0], c), vmulq_f32(v.val[1], s));
    y.val[1] = vaddq_f32(vmulq_f32(v.val[1], c), vmulq_f32(v.val[0], s));
    vst2q_f32(x, y);
  }
};

}  // namespace
}  // namespace sluice
