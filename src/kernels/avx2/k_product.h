// Products of 256-element weight types, eight rows at a time: 256 weights times 256 int8
// activations are one exact integer per row; then acc = acc + dx * (d * isum [- dmin * imin]),
// block after block (scalar/int_block.h).
//
// Contract: KRows<T> handles rows [row_begin, row_end) of type T (k_types.h). A few tokens multiply
// blocks in registers; more share a panel. Unnamed namespace: see simd.h.
#pragma once

#include "kernels/avx2/k_types.h"
#include "kernels/avx2/tiles.h"

namespace sluice {
namespace {

// One step of the chain for eight rows. `imin` is used by types with a second scale only.
template <class T>
inline __m256 Accumulate(__m256 acc, float dx, __m256 d, __m256i isum, __m256 m, __m256i imin) {
  __m256 value = _mm256_mul_ps(d, _mm256_cvtepi32_ps(isum));
  if constexpr (T::kMin) {
    value = _mm256_add_ps(value, _mm256_mul_ps(m, _mm256_cvtepi32_ps(imin)));
  }
  return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_set1_ps(dx), value));
}

inline __m256 Negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

// Quants 0..3 without scales: the pairs of a whole block fit int16 (8 * 2 * 3 * 127).
template <class T, int kTokens>
inline void TernaryDot(const uint8_t* block, const int8_t* x, uint64_t x_stride, __m256i* acc) {
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i w = T::Quants(block, g);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i pairs = PairProducts<false>(w, Load256(x + t * x_stride + 32 * g));
      acc[t] = _mm256_add_epi16(acc[t], pairs);
    }
  }
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_madd_epi16(acc[t], _mm256_set1_epi16(1));
}

// One row's block times the activations of kTokens tokens: eight partial sums each.
template <class T, int kTokens>
inline void BlockDot(const uint8_t* block, const int8_t* x, uint64_t x_stride, __m256i scales,
                     __m256i* acc) {
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_si256();
  if constexpr (T::kTernary) return TernaryDot<T, kTokens>(block, x, x_stride, acc);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i w = T::Quants(block, g);
    const __m256i s = _mm256_shuffle_epi8(
        scales, _mm256_set1_epi16(static_cast<int16_t>((2 * g + 1) << 8 | 2 * g)));
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i pairs = PairProducts<T::kSigned>(w, Load256(x + t * x_stride + 32 * g));
      acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs, s));
    }
  }
}

// A few tokens: blocks are taken apart in registers.
template <class T, int kTokens>
void FewTokens(const MatmulArgs& args, const RowTile& rows) {
  const ActRows& a = args.x;
  __m256 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = _mm256_setzero_ps();
  for (uint32_t b = 0; b < a.cols / 256; ++b) {
    const uint64_t at = uint64_t{b} * T::kBytes;
    __m256i dots[kTokens][kTileRows], mins[kTokens][kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const uint8_t* block = rows.base + r * rows.stride + at;
      const Head head = T::ReadHead(block);
      __m256i dot[kTokens];
      BlockDot<T, kTokens>(block, a.q + uint64_t{b} * 256, a.q_stride, head.s, dot);
      for (int t = 0; t < kTokens; ++t) {
        const int16_t* sums = a.sums + t * a.sums_stride + uint64_t{b} * 16;
        const __m256i weighted = _mm256_madd_epi16(head.n, Load256(sums));
        dots[t][r] = T::kShift ? _mm256_sub_epi32(dot[t], weighted) : dot[t];
        if (T::kMin) mins[t][r] = weighted;
      }
    }
    const __m256 d = BlockScales<T>(rows.base + at, rows.stride);
    __m256 m = _mm256_setzero_ps();
    if constexpr (T::kMin) m = Negated(Halves8(rows.base + at + T::kMinAt, rows.stride));
    for (int t = 0; t < kTokens; ++t) {
      const __m256i imin = T::kMin ? SumLanes32(mins[t]) : _mm256_setzero_si256();
      total[t] =
          Accumulate<T>(total[t], a.scale[t * a.scale_stride + b], d, SumLanes32(dots[t]), m, imin);
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreTile(args, uint64_t(t), rows, total[t]);
}

// Eight rows of one block, turned so that each 32-bit lane belongs to one row: four quants, a scale
// twice, or two mins. Every token then multiplies it without any sum across lanes.
struct alignas(32) Panel {
  __m256i quants[8][8];  // [group of 32][step of 4]
  __m256i scales[16];    // per group of 16 (kFine) or 32
  __m256i mins[8];       // per pair of groups of 16
  __m256 d, m;
};

template <class T>
void ReadPanel(const RowTile& rows, uint64_t at, Panel* panel) {
  __m256i lines[kTileRows], low[kTileRows], high[kTileRows], mins[kTileRows];
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const Head head = T::ReadHead(rows.base + r * rows.stride + at);
    low[r] = _mm256_unpacklo_epi16(head.s, head.s);
    high[r] = _mm256_unpackhi_epi16(head.s, head.s);
    mins[r] = head.n;
  }
  if constexpr (T::kMin || T::kShift) Transpose8x8(mins, panel->mins);
  __m256i turned[8];
  if constexpr (T::kFine) {
    // low: even groups 0 2 4 6, odd groups 1 3 5 7; high: 8 10 12 14, 9 11 13 15.
    Transpose8x8(low, turned);
    for (int i = 0; i < 8; ++i) panel->scales[i] = turned[i / 2 + (i % 2) * 4];
    Transpose8x8(high, turned);
    for (int i = 0; i < 8; ++i) panel->scales[8 + i] = turned[i / 2 + (i % 2) * 4];
  } else {
    for (uint32_t r = 0; r < kTileRows; ++r) {
      lines[r] = _mm256_permute2x128_si256(low[r], high[r], 0x20);
    }
    Transpose8x8(lines, panel->scales);
  }
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    for (uint32_t r = 0; r < kTileRows; ++r)
      lines[r] = T::Quants(rows.base + r * rows.stride + at, g);
    Transpose8x8(lines, panel->quants[g]);
  }
  panel->d = BlockScales<T>(rows.base + at, rows.stride);
  if constexpr (T::kMin) panel->m = Negated(Halves8(rows.base + at + T::kMinAt, rows.stride));
}

// kTokens tokens times one panel.
template <class T, int kTokens>
inline void PanelDot(const Panel& panel, const BlockTokens& x, __m256* acc) {
  constexpr int kSteps = T::kFine ? 4 : 8, kRuns = 64 / kSteps;
  static_assert(kSteps % T::kAcc == 0);
  const __m256i* w = &panel.quants[0][0];
  __m256i isum[kTokens], imin[kTokens];
  for (int t = 0; t < kTokens; ++t) isum[t] = imin[t] = _mm256_setzero_si256();
  for (int run = 0; run < kRuns; ++run) {
    const __m256i s = panel.scales[run];
#pragma GCC unroll 8
    for (int part = 0; part < kSteps; part += T::kAcc) {
      __m256i pairs[kTokens];
#pragma GCC unroll 8
      for (int i = part; i < part + T::kAcc; ++i) {
        const int step = run * kSteps + i;
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const __m256i xs = _mm256_set1_epi32(LoadI32(x.q + t * x.q_stride + 4 * step));
          const __m256i p = PairProducts<T::kSigned>(w[step], xs);
          pairs[t] = i == part ? p : _mm256_add_epi16(pairs[t], p);
          KeepChain(pairs[t]);
        }
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(pairs[t], s));
        KeepChain(isum[t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (T::kMin || T::kShift) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const __m256i sums = _mm256_set1_epi32(LoadI32(x.sums + t * x.sums_stride + 2 * i));
        imin[t] = _mm256_add_epi32(imin[t], _mm256_madd_epi16(panel.mins[i], sums));
      }
      if constexpr (T::kShift) isum[t] = _mm256_sub_epi32(isum[t], imin[t]);
    }
    acc[t] = Accumulate<T>(acc[t], x.scale[t * x.scale_stride], panel.d, isum[t], panel.m, imin[t]);
  }
}

template <class T>
void TokenTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  __m256 acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = _mm256_setzero_ps();
  Panel panel;
  for (uint32_t b = 0; b < args.x.cols / 256; ++b) {
    ReadPanel<T>(rows, uint64_t{b} * T::kBytes, &panel);
    const BlockTokens x(args.x, token, b, 256, 16);
    RunTokens<4>(tokens,
                 [&](auto run, uint32_t t) { PanelDot<T, run.value>(panel, x.From(t), acc + t); });
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreTile(args, token + t, rows, acc[t]);
}

template <class T>
void KRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  constexpr FewTokensOfTile kFew[] = {FewTokens<T, 1>, FewTokens<T, 2>, FewTokens<T, 3>,
                                      FewTokens<T, 4>};
  WalkTiles<kTileRows, kTileRows>(args, row_begin, row_end, kFew, TokenTile<T>);
}

}  // namespace
}  // namespace sluice
