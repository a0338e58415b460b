// Panels: four rows of a block interleaved for an instruction that multiplies several rows at once.
//
// Contract: as products.h; an `Isa` with kPanel also gives
//   kPairs                     tokens come in pairs (an odd last one is paired with itself)
//   Interleave(w, out)         16 quants of each of four rows to 64 bytes
//   LoadTokens(q, at, x)       16 activations from `at` on of each token
//   Step(w, x, acc)            adds 16 columns' products: one vector per token, in the Isa's layout
//   Scale(s, i)                the scales for vector i, of four rows' scales
//   ByToken(v)                 from the Isa's layout to one vector of four rows per token
#pragma once

#include "kernels/neon/products.h"

namespace sluice {
namespace {

template <class T>
struct Panel {
  static constexpr int kGroups = T::kElems / T::kGroup;
  alignas(64) int8_t q[T::kElems / 16][64];
  int32_t s[kGroups][kTileRows];
  int16_t n[T::kElems / T::kMinGroup][kTileRows];
  float32x4_t d, m;
};

template <class T, class Isa>
void ReadPanel(const uint8_t* block, uint64_t stride, Panel<T>* panel) {
  if constexpr (T::kElems == 256 && T::kGroup < 256) {
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const Head head = T::ReadHead(block + r * stride);
      int16_t s[16], n[16];
      for (int i = 0; i < 2; ++i) {
        vst1q_s16(s + 8 * i, head.s[i]);
        vst1q_s16(n + 8 * i, head.n[i]);
      }
      for (int g = 0; g < Panel<T>::kGroups; ++g) panel->s[g][r] = s[g];
      if constexpr (T::kMin) {
        for (int g = 0; g < T::kElems / T::kMinGroup; ++g) panel->n[g][r] = n[g];
      }
    }
  }
  Unrolled<T::kElems / 32>([&](auto g) {
    int8x16_t rows[kTileRows][2];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      T::template Quants<g.value>(block + r * stride, rows[r]);
    }
    for (int i = 0; i < 2; ++i) {
      const int8x16_t w[kTileRows] = {rows[0][i], rows[1][i], rows[2][i], rows[3][i]};
      Isa::Interleave(w, panel->q[2 * g.value + i]);
    }
  });
  panel->d = T::D(block, stride);
  panel->m = MinsOf<T>(block, stride);
}

// A token's activation sums weighted by the mins of four rows.
template <class T>
inline int32x4_t PanelMins(const Panel<T>& panel, const int16_t* sums) {
  if constexpr (T::kElems == 32) {
    return vdupq_n_s32(sums[0]);
  } else {
    const int16x8_t a = vld1q_s16(sums), b = vld1q_s16(sums + 8);
    int32x4_t acc = vdupq_n_s32(0);
    Unrolled<T::kElems / T::kMinGroup>([&](auto g) {
      const int16x4_t n = vld1_s16(panel.n[g.value]);
      const int16x8_t all = T::kMinGroup == 32 ? vpaddq_s16(a, b) : g.value < 8 ? a : b;
      acc = vmlal_laneq_s16(acc, n, all, g.value % 8);
    });
    return acc;
  }
}

// Up to kTokens tokens (`count` of them count) times one panel.
template <class T, class Isa, int kTokens>
inline void PanelDot(const Panel<T>& panel, const ActRows& a, uint32_t token, uint32_t count,
                     uint32_t b, float32x4_t* acc) {
  constexpr int kSteps = T::kGroup / 16;  // between scales
  const auto x = TokensAt<T, kTokens>(a, token, count, b);
  int32x4_t isum[kTokens];
  for (int t = 0; t < kTokens; ++t) isum[t] = vdupq_n_s32(0);
  for (int g = 0; g < Panel<T>::kGroups; ++g) {
    int32x4_t dot[kTokens];
    for (int t = 0; t < kTokens; ++t) dot[t] = vdupq_n_s32(0);
#pragma GCC unroll 2
    for (int i = 0; i < kSteps; ++i) {
      int8x16_t xs[kTokens];
      Isa::template LoadTokens<kTokens>(x.q, 16 * (g * kSteps + i), xs);
      Isa::template Step<kTokens>(panel.q[g * kSteps + i], xs, dot);
    }
    if constexpr (T::kGroup == T::kElems) {
      for (int t = 0; t < kTokens; ++t) isum[t] = dot[t];
    } else {
      const int32x4_t s = vld1q_s32(panel.s[g]);
      for (int t = 0; t < kTokens; ++t) isum[t] = vmlaq_s32(isum[t], dot[t], Isa::Scale(s, t));
    }
  }
  Isa::template ByToken<kTokens>(isum);
  for (uint32_t t = 0; t < kTokens; ++t) {
    int32x4_t imin = vdupq_n_s32(0);
    if constexpr (T::kMin) imin = PanelMins<T>(panel, x.sums[t]);
    if (t < count) acc[t] = Chain<T>(acc[t], x.dx[t], panel.d, isum[t], panel.m, imin);
  }
}

template <class T, class Isa>
void PanelTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  float32x4_t acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = vdupq_n_f32(0);
  Panel<T> panel;
  for (uint32_t b = 0; b < args.x.cols / T::kElems; ++b) {
    ReadPanel<T, Isa>(rows.base + uint64_t{b} * T::kBytes, rows.stride, &panel);
    uint32_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
      PanelDot<T, Isa, 4>(panel, args.x, token + t, 4, b, acc + t);
    }
    if (t + 2 <= tokens) {
      PanelDot<T, Isa, 2>(panel, args.x, token + t, 2, b, acc + t);
      t += 2;
    }
    if (t < tokens) PanelDot<T, Isa, Isa::kPairs ? 2 : 1>(panel, args.x, token + t, 1, b, acc + t);
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreTile(args, token + t, rows, acc[t]);
}

}  // namespace
}  // namespace sluice
