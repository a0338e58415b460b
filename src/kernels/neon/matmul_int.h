// Integer matrix products for aarch64, parameterised by how 16 int8 products are added up.
//
// Contract: included by one translation unit per instruction set; `Dot::Add(acc, a, b)` adds the
// sixteen products of a and b to the four lanes of acc, exactly. Each weight block is taken apart
// once (IntBlock) and multiplied with every token of a tile; the float chain is the scalar one, so
// the bits are scalar's. All in an unnamed namespace.
#pragma once

#include <arm_neon.h>

#include "kernels/ops.h"
#include "kernels/scalar/int_block.h"

namespace sluice {
namespace {

constexpr uint32_t kTileTokens = 64;  // accumulators on the stack while a row is walked

inline float HalfAt(const uint8_t* p) {
  float16_t half;
  __builtin_memcpy(&half, p, 2);
  return static_cast<float>(half);
}

// 16 bytes of nibbles: the low ones, then the high ones, minus `offset`.
inline void StoreNibbles(const uint8_t* p, int8_t offset, int8_t* q) {
  const uint8x16_t v = vld1q_u8(p);
  const int8x16_t off = vdupq_n_s8(offset);
  vst1q_s8(q, vsubq_s8(vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))), off));
  vst1q_s8(q + 16, vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(v, 4)), off));
}

inline void ReadQ4K(const uint8_t* b, scalar::IntBlock* w) {
  uint32_t in[3], out[4];
  __builtin_memcpy(in, b + 4, 12);
  out[0] = in[0] & 0x3f3f3f3fu;  // scales 0..3, then 4..7, then the mins alike
  out[1] = (in[2] & 0x0f0f0f0fu) | ((in[0] >> 6) & 0x03030303u) << 4;
  out[2] = in[1] & 0x3f3f3f3fu;
  out[3] = ((in[2] >> 4) & 0x0f0f0f0fu) | ((in[1] >> 6) & 0x03030303u) << 4;
  const uint8x16_t all = vreinterpretq_u8_u32(vld1q_u32(out));
  const uint8x16_t s = vzip1q_u8(all, all), n = vzip2q_u8(all, all);
  vst1q_s16(w->s, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s))));
  vst1q_s16(w->s + 8, vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(s))));
  vst1q_s16(w->n, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(n))));
  vst1q_s16(w->n + 8, vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(n))));
  for (int g = 0; g < 8; g += 2) {
    for (int i = 0; i < 32; i += 16) {
      const uint8x16_t v = vld1q_u8(b + 16 + 16 * g + i);
      vst1q_s8(w->q + 32 * g + i, vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))));
      vst1q_s8(w->q + 32 * g + 32 + i, vreinterpretq_s8_u8(vshrq_n_u8(v, 4)));
    }
  }
  w->d = HalfAt(b);
  w->m = -HalfAt(b + 2);
  w->has_min = true;
}

inline void ReadQ6K(const uint8_t* b, scalar::IntBlock* w) {
  const int8x16_t s = vld1q_s8(reinterpret_cast<const int8_t*>(b + 192));
  vst1q_s16(w->s, vmovl_s8(vget_low_s8(s)));
  vst1q_s16(w->s + 8, vmovl_s8(vget_high_s8(s)));
  for (int part = 0; part < 8; ++part) {
    const int half = part / 4, i = part % 4 * 16;  // 64 bytes of ql serve 128 elements
    const uint8x16_t ql = vld1q_u8(b + 64 * half + i);
    const uint8x16_t qh = vld1q_u8(b + 128 + 32 * half + i % 32);
    // Elements of j = i / 32 come from low nibbles, those of j + 2 from high ones.
    const uint8x16_t low_bits = i < 32 ? qh : vshrq_n_u8(qh, 2);
    const uint8x16_t high_bits = i < 32 ? vshrq_n_u8(qh, 4) : vshrq_n_u8(qh, 6);
    const uint8x16_t two = vdupq_n_u8(3);
    const uint8x16_t low =
        vorrq_u8(vandq_u8(ql, vdupq_n_u8(15)), vshlq_n_u8(vandq_u8(low_bits, two), 4));
    const uint8x16_t high = vorrq_u8(vshrq_n_u8(ql, 4), vshlq_n_u8(vandq_u8(high_bits, two), 4));
    const int8x16_t off = vdupq_n_s8(32);
    int8_t* q = w->q + 128 * half + i;
    vst1q_s8(q, vsubq_s8(vreinterpretq_s8_u8(low), off));
    vst1q_s8(q + 64, vsubq_s8(vreinterpretq_s8_u8(high), off));
  }
  w->d = HalfAt(b + 208);
  w->has_min = false;
}

inline void ReadBlock(WeightType type, const uint8_t* b, scalar::IntBlock* w) {
  switch (type) {
    case WeightType::kQ4_0:
      w->d = HalfAt(b);
      w->has_min = false;
      return StoreNibbles(b + 2, 8, w->q);
    case WeightType::kQ4_1:
      w->d = HalfAt(b);
      w->m = HalfAt(b + 2);
      w->has_min = true;
      return StoreNibbles(b + 4, 0, w->q);
    case WeightType::kQ8_0:
      w->d = HalfAt(b);
      w->has_min = false;
      __builtin_memcpy(w->q, b + 2, 32);
      return;
    case WeightType::kQ4_K:
      return ReadQ4K(b, w);
    case WeightType::kQ6_K:
      return ReadQ6K(b, w);
    default:
      return scalar::ReadIntBlock(type, b, w);
  }
}

template <class Dot>
float LegacyDot(const scalar::IntBlock& w, const int8_t* x, int16_t sum) {
  int32x4_t acc = vdupq_n_s32(0);
  acc = Dot::Add(acc, vld1q_s8(w.q), vld1q_s8(x));
  acc = Dot::Add(acc, vld1q_s8(w.q + 16), vld1q_s8(x + 16));
  float value = w.d * static_cast<float>(vaddvq_s32(acc));
  if (w.has_min) value = value + w.m * static_cast<float>(sum);
  return value;
}

template <class Dot>
float KDot(const scalar::IntBlock& w, const int8_t* x, const int16_t* sums) {
  int32x4_t acc = vdupq_n_s32(0);
  for (int g = 0; g < 16; ++g) {
    const int32x4_t dot = Dot::Add(vdupq_n_s32(0), vld1q_s8(w.q + 16 * g), vld1q_s8(x + 16 * g));
    acc = vmlaq_n_s32(acc, dot, w.s[g]);
  }
  float value = w.d * static_cast<float>(vaddvq_s32(acc));
  if (w.has_min) {
    int32x4_t imin = vdupq_n_s32(0);
    for (int g = 0; g < 16; g += 4) {
      imin = vmlal_s16(imin, vld1_s16(w.n + g), vld1_s16(sums + g));
    }
    value = value + w.m * static_cast<float>(vaddvq_s32(imin));
  }
  return value;
}

template <class Dot>
void MatmulInt(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const uint32_t elems = info.block_elems;
  const ActRows& x = args.x;
  scalar::IntBlock w;
  for (uint32_t t0 = 0; t0 < x.rows; t0 += kTileTokens) {
    const uint32_t tokens = x.rows - t0 < kTileTokens ? x.rows - t0 : kTileTokens;
    for (uint32_t r = row_begin; r < row_end; ++r) {
      float acc[kTileTokens] = {};
      const uint8_t* row = args.weights + r * args.row_bytes;
      for (uint32_t b = 0; b < x.cols / elems; ++b) {
        ReadBlock(args.type, row + uint64_t{b} * info.block_bytes, &w);
        for (uint32_t i = 0; i < tokens; ++i) {
          const uint64_t t = t0 + i;
          const int8_t* q = x.q + t * x.q_stride + uint64_t{b} * elems;
          const int16_t* sums = x.sums + t * x.sums_stride;
          const float value =
              elems == 32 ? LegacyDot<Dot>(w, q, sums[b]) : KDot<Dot>(w, q, sums + 16 * b);
          acc[i] = acc[i] + x.scale[t * x.scale_stride + b] * value;
        }
      }
      for (uint32_t i = 0; i < tokens; ++i) {
        args.out[(t0 + i) * args.out_stride + r] = args.bias ? acc[i] + args.bias[r] : acc[i];
      }
    }
  }
}

}  // namespace
}  // namespace sluice
