// Products of quantised weights with int8 activations for aarch64, four rows at a time: per block
// and row one exact integer, then acc = acc + dx * (d * isum [+ m * imin]), block after block
// (scalar/int_block.h): the bits are scalar's.
//
// Contract: included by one translation unit per instruction set, which names what it has in `Isa`:
//   kFewTokens                 up to so many tokens (1 or 2) multiply blocks in registers
//   Dot(acc, a, b)             adds the sixteen products of a and b to the four lanes of acc
//   kPanel                     whether more tokens share a panel (panel.h); otherwise they share
//                              the quants of four rows, taken apart once
// All in an unnamed namespace.
#pragma once

#include "kernels/neon/tiles.h"
#include "kernels/neon/types.h"
#include "kernels/scalar/int_block.h"

namespace sluice {
namespace {

// A block that was taken apart before: `Quants` reads what Store() wrote. s and n are in the type's
// own granularity.
template <class T>
struct Stored : T {
  static void Store(const uint8_t* b, scalar::IntBlock* out) {
    const Head head = T::ReadHead(b);
    for (int i = 0; i < 2; ++i) {
      vst1q_s16(out->s + 8 * i, head.s[i]);
      vst1q_s16(out->n + 8 * i, head.n[i]);
    }
    Unrolled<T::kElems / 32>([&](auto g) {
      int8x16_t q[2];
      T::template Quants<g.value>(b, q);
      vst1q_s8(out->q + 32 * g.value, q[0]);
      vst1q_s8(out->q + 32 * g.value + 16, q[1]);
    });
  }
  static Head ReadHead(const uint8_t* b) {
    const auto* w = reinterpret_cast<const scalar::IntBlock*>(b);
    return {{vld1q_s16(w->s), vld1q_s16(w->s + 8)}, {vld1q_s16(w->n), vld1q_s16(w->n + 8)}};
  }
  template <int kG>
  static void Quants(const uint8_t* b, int8x16_t* q) {
    const auto* w = reinterpret_cast<const scalar::IntBlock*>(b);
    for (int i = 0; i < 2; ++i) q[i] = vld1q_s8(w->q + 32 * kG + 16 * i);
  }
};

// Up to four tokens' activations of one block; the first one repeated where there are fewer.
template <int kTokens>
struct TokenBlock {
  const int8_t* q[kTokens];
  const int16_t* sums[kTokens];
  float dx[kTokens];
};

template <class T, int kTokens>
inline TokenBlock<kTokens> TokensAt(const ActRows& a, uint32_t token, uint32_t count,
                                    uint32_t block) {
  constexpr uint32_t kSums = T::kElems == 32 ? 1 : 16;
  TokenBlock<kTokens> x;
  for (uint32_t i = 0; i < kTokens; ++i) {
    const uint64_t t = token + (i < count ? i : 0);
    x.q[i] = a.q + t * a.q_stride + uint64_t{block} * T::kElems;
    x.sums[i] = a.sums + t * a.sums_stride + uint64_t{block} * kSums;
    x.dx[i] = a.scale[t * a.scale_stride + block];
  }
  return x;
}

// One step of the chain for four rows.
template <class T>
inline float32x4_t Chain(float32x4_t acc, float dx, float32x4_t d, int32x4_t isum, float32x4_t m,
                         int32x4_t imin) {
  float32x4_t value = vmulq_f32(d, vcvtq_f32_s32(isum));
  if constexpr (T::kMin) value = vaddq_f32(value, vmulq_f32(m, vcvtq_f32_s32(imin)));
  return vaddq_f32(acc, vmulq_n_f32(value, dx));
}

template <class T>
inline float32x4_t MinsOf(const uint8_t* block, uint64_t stride) {
  if constexpr (T::kMin) {
    return T::M(block, stride);
  } else {
    return vdupq_n_f32(0);
  }
}

// The sixteen sums of a token's block, or the eight of its pairs, beside the mins of one row.
template <class T>
inline int32x4_t WeightedSums(const Head& head, const int16_t* sums) {
  const int16x8_t a = vld1q_s16(sums), b = vld1q_s16(sums + 8);
  if constexpr (T::kMinGroup == 32) {
    const int16x8_t pairs = vpaddq_s16(a, b);
    return vmlal_high_s16(vmull_s16(vget_low_s16(head.n[0]), vget_low_s16(pairs)), head.n[0],
                          pairs);
  } else {
    int32x4_t acc = vmull_s16(vget_low_s16(head.n[0]), vget_low_s16(a));
    acc = vmlal_high_s16(acc, head.n[0], a);
    acc = vmlal_s16(acc, vget_low_s16(head.n[1]), vget_low_s16(b));
    return vmlal_high_s16(acc, head.n[1], b);
  }
}

// One row's block times the activations of kTokens tokens: four partial sums each.
template <class T, class Isa, int kTokens>
inline void RowDot(const uint8_t* block, const Head& head, const TokenBlock<kTokens>& x,
                   int32x4_t* acc) {
  int32x4_t s[4];
  for (int i = 0; i < 4; ++i) {
    const int16x8_t half = head.s[i / 2];
    s[i] = i % 2 ? vmovl_high_s16(half) : vmovl_s16(vget_low_s16(half));
  }
  const int32x4_t zero = vdupq_n_s32(0);
  for (int t = 0; t < kTokens; ++t) acc[t] = zero;
  Unrolled<T::kElems / 32>([&](auto index) {
    constexpr int kG = index.value;
    int8x16_t q[2];
    T::template Quants<kG>(block, q);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const int8x16_t x0 = Load8(x.q[t] + 32 * kG), x1 = Load8(x.q[t] + 32 * kG + 16);
      if constexpr (T::kGroup == T::kElems) {
        acc[t] = Isa::Dot(Isa::Dot(acc[t], q[0], x0), q[1], x1);
      } else if constexpr (T::kGroup == 32) {
        const int32x4_t dot = Isa::Dot(Isa::Dot(zero, q[0], x0), q[1], x1);
        acc[t] = vmlaq_laneq_s32(acc[t], dot, s[kG / 4], kG % 4);
      } else {
        constexpr int kS = 2 * kG;
        acc[t] = vmlaq_laneq_s32(acc[t], Isa::Dot(zero, q[0], x0), s[kS / 4], kS % 4);
        acc[t] = vmlaq_laneq_s32(acc[t], Isa::Dot(zero, q[1], x1), s[kS / 4], kS % 4 + 1);
      }
    }
  });
}

// One block of four rows: the integers of each token, one row per lane.
template <class T, class Isa, int kTokens>
inline void BlockRows(const uint8_t* block, uint64_t stride, const TokenBlock<kTokens>& x,
                      int32x4_t* isum, int32x4_t* imin) {
  int32x4_t dots[kTokens][kTileRows], mins[kTokens][kTileRows];
  // A row is hundreds of straight instructions: four copies of them gain nothing.
#pragma GCC unroll 1
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint8_t* row = block + r * stride;
    const Head head = T::ReadHead(row);
    int32x4_t acc[kTokens];
    RowDot<T, Isa, kTokens>(row, head, x, acc);
    for (int t = 0; t < kTokens; ++t) {
      dots[t][r] = acc[t];
      if constexpr (T::kMin && T::kElems == 256) {
        mins[t][r] = WeightedSums<T>(head, x.sums[t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    isum[t] = SumLanes(dots[t]);
    if constexpr (T::kMin) {
      imin[t] = T::kElems == 256 ? SumLanes(mins[t]) : vdupq_n_s32(x.sums[t][0]);
    } else {
      imin[t] = vdupq_n_s32(0);
    }
  }
}

// Blocks are taken apart in registers.
template <class T, class Isa, int kTokens>
__attribute__((noinline)) void FewTokens(const MatmulArgs& args, const RowTile& rows) {
  const ActRows& a = args.x;
  float32x4_t total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = vdupq_n_f32(0);
  for (uint32_t b = 0; b < a.cols / T::kElems; ++b) {
    const uint8_t* block = rows.base + uint64_t{b} * T::kBytes;
    const auto x = TokensAt<T, kTokens>(a, 0, kTokens, b);
    int32x4_t isum[kTokens], imin[kTokens];
    BlockRows<T, Isa, kTokens>(block, rows.stride, x, isum, imin);
    const float32x4_t d = T::D(block, rows.stride), m = MinsOf<T>(block, rows.stride);
    for (int t = 0; t < kTokens; ++t) {
      total[t] = Chain<T>(total[t], x.dx[t], d, isum[t], m, imin[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreTile(args, uint64_t(t), rows, total[t]);
}

// Four rows of a block, taken apart once for all tokens of a tile.
struct StoredRows {
  scalar::IntBlock rows[kTileRows];
  const uint8_t* block() const { return reinterpret_cast<const uint8_t*>(rows); }
};

template <class T, class Isa, int kTokens>
inline void StoredDot(const StoredRows& w, const ActRows& a, uint32_t token, uint32_t b,
                      float32x4_t d, float32x4_t m, float32x4_t* acc) {
  const auto x = TokensAt<T, kTokens>(a, token, kTokens, b);
  int32x4_t isum[kTokens], imin[kTokens];
  BlockRows<Stored<T>, Isa, kTokens>(w.block(), sizeof(scalar::IntBlock), x, isum, imin);
  for (int t = 0; t < kTokens; ++t) acc[t] = Chain<T>(acc[t], x.dx[t], d, isum[t], m, imin[t]);
}

// All tokens of a tile times four stored rows of block b.
template <class T, class Isa>
void StoredTokens(const StoredRows& w, const ActRows& a, uint32_t token, uint32_t tokens,
                  uint32_t b, float32x4_t d, float32x4_t m, float32x4_t* acc) {
  uint32_t t = 0;
  for (; t + 4 <= tokens; t += 4) StoredDot<T, Isa, 4>(w, a, token + t, b, d, m, acc + t);
  for (; t < tokens; ++t) StoredDot<T, Isa, 1>(w, a, token + t, b, d, m, acc + t);
}

template <class T, class Isa>
void StoredTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  float32x4_t acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = vdupq_n_f32(0);
  StoredRows w;
  for (uint32_t b = 0; b < args.x.cols / T::kElems; ++b) {
    const uint8_t* block = rows.base + uint64_t{b} * T::kBytes;
    for (uint32_t r = 0; r < kTileRows; ++r) Stored<T>::Store(block + r * rows.stride, &w.rows[r]);
    const float32x4_t d = T::D(block, rows.stride), m = MinsOf<T>(block, rows.stride);
    StoredTokens<T, Isa>(w, args.x, token, tokens, b, d, m, acc);
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreTile(args, token + t, rows, acc[t]);
}

}  // namespace
}  // namespace sluice
