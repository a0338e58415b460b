// 32-element weight types with byte dot products, for vectors of eight or sixteen rows: what
// avx2/matmul_legacy.cc computes, to the bit (scalar/int_block.h).
//
// Contract: LegacyRows<V, T> as KRows of k_product.h. Unnamed namespace: see avx2/simd.h.
#pragma once

#include "kernels/avxvnni/k_product.h"

namespace sluice {
namespace {

// Blocks of a panel; a row's last panel may hold fewer.
constexpr uint32_t kPanelBlocks = 8;

// One step of the chain; `isum` is of the quants as stored.
template <class V, class T>
inline typename V::Float LegacyChain(typename V::Float acc, float dx, int16_t sum,
                                     typename V::Float d, typename V::Int isum,
                                     typename V::Float m) {
  if constexpr (T::kOffset != 0) isum = V::Sub(isum, V::Same(T::kOffset * sum));
  typename V::Float value = V::Mul(d, V::ToFloat(isum));
  if constexpr (T::kMin) value = V::Add(value, V::Mul(m, V::SameFloat(static_cast<float>(sum))));
  return V::Add(acc, V::Mul(V::SameFloat(dx), value));
}

template <class T>
inline __m256 MinsOf(const uint8_t* block, uint64_t stride) {
  if constexpr (T::kMin) {
    return T::Min(block, stride);
  } else {
    return _mm256_setzero_ps();
  }
}

template <class T, int kTokens>
void LegacyFewTokens(const MatmulArgs& args, const RowTile& rows) {
  const ActRows& a = args.x;
  __m256 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = Ymm::FloatZero();
  for (uint32_t b = 0; b < a.cols / 32; ++b) {
    const uint8_t* block = rows.base + uint64_t{b} * T::kBytes;
    const int8_t* x = a.q + uint64_t{b} * 32;
    __m256i dots[kTokens][kTileRows];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const __m256i w = T::Quants(block + r * rows.stride);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        dots[t][r] = Ymm::DotBytes(Ymm::Zero(), w, Load256(x + t * a.q_stride));
      }
    }
    const __m256 d = T::Scale(block, rows.stride), m = MinsOf<T>(block, rows.stride);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      total[t] = LegacyChain<Ymm, T>(total[t], a.scale[t * a.scale_stride + b],
                                     a.sums[t * a.sums_stride + b], d, SumLanes32(dots[t]), m);
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreRows<Ymm>(args, uint64_t(t), rows, total[t]);
}

// Up to eight blocks of V::kLanes rows, turned so that each 32-bit lane belongs to one row.
template <class V>
struct alignas(64) LegacyPanel {
  int32_t quants[kPanelBlocks][8][V::kLanes];  // [block][step of four columns]
  float d[kPanelBlocks][V::kLanes], m[kPanelBlocks][V::kLanes];
};

template <class V, class T>
void ReadLegacyPanel(const RowTile& rows, uint64_t at, uint32_t blocks, LegacyPanel<V>* panel) {
  for (uint32_t b = 0; b < blocks; ++b, at += T::kBytes) {
    for (uint32_t lane = 0; lane < V::kLanes; lane += 8) {
      const uint8_t* block = rows.base + lane * rows.stride + at;
      __m256i lines[8], turned[8];
      for (uint32_t r = 0; r < 8; ++r) lines[r] = T::Quants(block + r * rows.stride);
      Transpose8x8(lines, turned);
      for (int i = 0; i < 8; ++i) StoreLanes(panel->quants[b][i] + lane, turned[i]);
      _mm256_storeu_ps(panel->d[b] + lane, T::Scale(block, rows.stride));
      _mm256_storeu_ps(panel->m[b] + lane, MinsOf<T>(block, rows.stride));
    }
  }
}

template <class V, class T, int kTokens>
inline void LegacyPanelDot(const LegacyPanel<V>& panel, uint32_t blocks, const BlockTokens& x,
                           typename V::Float* acc) {
  typename V::Float total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = acc[t];
  for (uint32_t b = 0; b < blocks; ++b) {
    typename V::Int isum[kTokens];
    for (int t = 0; t < kTokens; ++t) isum[t] = V::Zero();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const typename V::Int w = V::Load(panel.quants[b][i]);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const int8_t* at = x.q + t * x.q_stride + 32 * b + 4 * i;
        isum[t] = V::DotBytes(isum[t], w, V::Broadcast(at));
      }
    }
    const typename V::Float d = V::LoadFloats(panel.d[b]);
    const typename V::Float m = T::kMin ? V::LoadFloats(panel.m[b]) : V::FloatZero();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      total[t] = LegacyChain<V, T>(total[t], x.scale[t * x.scale_stride + b],
                                   x.sums[t * x.sums_stride + b], d, isum[t], m);
    }
  }
  for (int t = 0; t < kTokens; ++t) acc[t] = total[t];
}

template <class V, class T>
void LegacyTokenTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  const uint32_t all_blocks = args.x.cols / 32;
  typename V::Float acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = V::FloatZero();
  LegacyPanel<V> panel;
  for (uint32_t b = 0; b < all_blocks; b += kPanelBlocks) {
    const uint32_t blocks = all_blocks - b < kPanelBlocks ? all_blocks - b : kPanelBlocks;
    ReadLegacyPanel<V, T>(rows, uint64_t{b} * T::kBytes, blocks, &panel);
    const BlockTokens x(args.x, token, b, 32, 1);
    RunTokens<V::kTokens>(tokens, [&](auto run, uint32_t t) {
      LegacyPanelDot<V, T, run.value>(panel, blocks, x.From(t), acc + t);
    });
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreRows<V>(args, token + t, rows, acc[t]);
}

template <class V, class T>
void LegacyRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  constexpr FewTokensOfTile kFew[] = {LegacyFewTokens<T, 1>, LegacyFewTokens<T, 2>,
                                      LegacyFewTokens<T, 3>, LegacyFewTokens<T, 4>};
  WalkTiles<kTileRows, V::kLanes>(args, row_begin, row_end, kFew, LegacyTokenTile<V, T>);
}

}  // namespace
}  // namespace sluice
