// K-quants and their kin with byte dot products, for vectors of eight or sixteen rows: what
// avx2/matmul_k.cc computes, to the bit (scalar/int_block.h).
//
// Contract: KRows<V, T> handles rows [row_begin, row_end) of type T; a tile needs V::kLanes rows,
// so the caller takes shorter ranges elsewhere. A few tokens multiply blocks in registers (256
// bits wide whatever V is: such products wait for memory); more share a panel. Unnamed namespace:
// see avx2/simd.h.
#pragma once

#include "kernels/avx2/tiles.h"
#include "kernels/avxvnni/types.h"
#include "kernels/avxvnni/vectors.h"

namespace sluice {
namespace {

// Steps (of four weights) until a scale takes effect.
template <class T>
constexpr int kGroupSteps = T::kFine ? 4 : 8;

// Steps whose sum of products surely fits int16 (4 * 127 * 15 * 4 for 4-bit quants), so that
// DotWords can scale it; kAcc counts pairs of products.
template <class T>
constexpr int kWordSteps = T::kAcc / 2;

// Whether the sum of two products surely fits int16.
template <class T>
constexpr bool kPairsFit = T::kAcc > 0;

// Whether a panel's groups are scaled by DotWords (at most twice per group), else by a 32-bit
// product, which costs three instructions.
template <class T>
constexpr bool kByWords = kWordSteps<T> > 0 && kGroupSteps<T> <= 2 * kWordSteps<T>;

inline __m256 NegatedFloats(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

template <class V>
void StoreRows(const MatmulArgs& args, uint64_t token, const RowTile& rows, typename V::Float sum) {
  alignas(64) float lanes[V::kLanes];
  V::StoreFloats(lanes, sum);
  StoreSums<V::kLanes>(args, token, rows, lanes);
}

// One step of the chain. `imin` is used by types with a second scale only.
template <class V, class T>
inline typename V::Float KChain(typename V::Float acc, float dx, typename V::Float d,
                                typename V::Int isum, typename V::Float m, typename V::Int imin) {
  typename V::Float value = V::Mul(d, V::ToFloat(isum));
  if constexpr (T::kMin) value = V::Add(value, V::Mul(m, V::ToFloat(imin)));
  return V::Add(acc, V::Mul(V::SameFloat(dx), value));
}

// One row's block times the activations of kTokens tokens: eight partial sums each.
template <class T, int kTokens>
inline void KBlockDot(const uint8_t* block, const int8_t* x, uint64_t x_stride, __m256i scales,
                      __m256i* acc) {
  for (int t = 0; t < kTokens; ++t) acc[t] = Ymm::Zero();
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i w = T::Quants(block, g);
    // Scale 2g (16-bit) of each half to all its words; for sums of four products in the low word
    // only, or widened.
    const int at = (2 * g + 1) << 8 | 2 * g;
    const int pick = kWordSteps<T> > 0 ? int(0x80800000u | unsigned(at))
                     : kPairsFit<T>    ? at << 16 | at
                                       : at << 16 | 0x8080;
    __m256i s = _mm256_shuffle_epi8(scales, _mm256_set1_epi32(pick));
    if constexpr (!kPairsFit<T>) s = _mm256_srai_epi32(s, 16);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i xs = Load256(x + t * x_stride + 32 * g);
      if constexpr (T::kTernary) {
        acc[t] = Ymm::DotBytes(acc[t], w, xs);
      } else if constexpr (kWordSteps<T> > 0) {
        acc[t] = Ymm::DotWords(acc[t], Ymm::DotBytes(Ymm::Zero(), w, xs), s);
      } else if constexpr (kPairsFit<T>) {
        acc[t] = Ymm::DotWords(acc[t], _mm256_maddubs_epi16(w, xs), s);
      } else {
        acc[t] = Ymm::Add(acc[t], Ymm::Mul(Ymm::DotBytes(Ymm::Zero(), w, xs), s));
      }
    }
  }
}

template <class T, int kTokens>
void KFewTokens(const MatmulArgs& args, const RowTile& rows) {
  const ActRows& a = args.x;
  __m256 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = Ymm::FloatZero();
  for (uint32_t b = 0; b < a.cols / 256; ++b) {
    const uint64_t at = uint64_t{b} * T::kBytes;
    __m256i dots[kTokens][kTileRows], mins[kTokens][kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const uint8_t* block = rows.base + r * rows.stride + at;
      const Head head = T::ReadHead(block);
      __m256i dot[kTokens];
      KBlockDot<T, kTokens>(block, a.q + uint64_t{b} * 256, a.q_stride, head.s, dot);
      for (int t = 0; t < kTokens; ++t) {
        const int16_t* sums = a.sums + t * a.sums_stride + uint64_t{b} * 16;
        const __m256i weighted = _mm256_madd_epi16(head.n, Load256(sums));
        dots[t][r] = T::kShift ? Ymm::Sub(dot[t], weighted) : dot[t];
        if (T::kMin) mins[t][r] = weighted;
      }
    }
    const __m256 d = BlockScales<T>(rows.base + at, rows.stride);
    __m256 m = Ymm::FloatZero();
    if constexpr (T::kMin) m = NegatedFloats(Halves8(rows.base + at + T::kMinAt, rows.stride));
    for (int t = 0; t < kTokens; ++t) {
      const __m256i imin = T::kMin ? SumLanes32(mins[t]) : Ymm::Zero();
      total[t] = KChain<Ymm, T>(total[t], a.scale[t * a.scale_stride + b], d, SumLanes32(dots[t]),
                                m, imin);
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreRows<Ymm>(args, uint64_t(t), rows, total[t]);
}

// One block of V::kLanes rows, turned so that each 32-bit lane belongs to one row.
template <class V>
struct alignas(64) KPanel {
  int32_t quants[64][V::kLanes];  // four quants of columns 4 * step ...
  int32_t scales[16][V::kLanes];  // per group of 16 (kFine) or 32: see kByWords
  int32_t mins[8][V::kLanes];     // two int16, for a pair of groups of 16
  float d[V::kLanes], m[V::kLanes];
};

inline void StoreLanes(int32_t* to, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
}

template <class V, class T>
void ReadScales(const Head* heads, uint32_t lane, KPanel<V>* panel) {
  __m256i low[8], high[8], turned[8];
  for (int r = 0; r < 8; ++r) {
    const __m256i s = heads[r].s;
    if constexpr (kByWords<T>) {
      low[r] = _mm256_unpacklo_epi16(s, _mm256_setzero_si256());
      high[r] = _mm256_unpackhi_epi16(s, _mm256_setzero_si256());
    } else {
      low[r] = _mm256_srai_epi32(_mm256_unpacklo_epi16(s, s), 16);
      high[r] = _mm256_srai_epi32(_mm256_unpackhi_epi16(s, s), 16);
    }
  }
  if constexpr (T::kFine) {
    // low: even groups 0 2 4 6, odd groups 1 3 5 7; high: 8 10 12 14, 9 11 13 15.
    Transpose8x8(low, turned);
    for (int i = 0; i < 8; ++i) StoreLanes(panel->scales[i] + lane, turned[i / 2 + i % 2 * 4]);
    Transpose8x8(high, turned);
    for (int i = 0; i < 8; ++i) StoreLanes(panel->scales[8 + i] + lane, turned[i / 2 + i % 2 * 4]);
  } else {
    for (int r = 0; r < 8; ++r) low[r] = _mm256_permute2x128_si256(low[r], high[r], 0x20);
    Transpose8x8(low, turned);
    for (int i = 0; i < 8; ++i) StoreLanes(panel->scales[i] + lane, turned[i]);
  }
}

// Eight rows' blocks at `block`, `stride` bytes apart, into lanes [lane, lane + 8).
template <class V, class T>
void ReadEight(const uint8_t* block, uint64_t stride, uint32_t lane, KPanel<V>* panel) {
  Head heads[8];
  __m256i lines[8], turned[8];
  for (uint32_t r = 0; r < 8; ++r) heads[r] = T::ReadHead(block + r * stride);
  if constexpr (!T::kTernary) ReadScales<V, T>(heads, lane, panel);
  if constexpr (T::kMin || T::kShift) {
    for (uint32_t r = 0; r < 8; ++r) lines[r] = heads[r].n;
    Transpose8x8(lines, turned);
    for (int i = 0; i < 8; ++i) StoreLanes(panel->mins[i] + lane, turned[i]);
  }
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    for (uint32_t r = 0; r < 8; ++r) lines[r] = T::Quants(block + r * stride, g);
    Transpose8x8(lines, turned);
    for (int i = 0; i < 8; ++i) StoreLanes(panel->quants[8 * g + i] + lane, turned[i]);
  }
  _mm256_storeu_ps(panel->d + lane, BlockScales<T>(block, stride));
  if constexpr (T::kMin) {
    _mm256_storeu_ps(panel->m + lane, NegatedFloats(Halves8(block + T::kMinAt, stride)));
  }
}

template <class V, class T>
void ReadKPanel(const RowTile& rows, uint64_t at, KPanel<V>* panel) {
  for (uint32_t lane = 0; lane < V::kLanes; lane += 8) {
    ReadEight<V, T>(rows.base + lane * rows.stride + at, rows.stride, lane, panel);
  }
}

// The integer sums of kTokens tokens times one panel.
template <class V, class T, int kTokens>
inline void KPanelSums(const KPanel<V>& panel, const BlockTokens& x, typename V::Int* isum) {
  constexpr int kSteps = kGroupSteps<T>, kGroups = 64 / kSteps;
  constexpr int kRun = kByWords<T> && kWordSteps<T> < kSteps ? kWordSteps<T> : kSteps;
  for (int t = 0; t < kTokens; ++t) isum[t] = V::Zero();
  for (int group = 0; group < kGroups; ++group) {
#pragma GCC unroll 8
    for (int part = 0; part < kSteps; part += kRun) {
      typename V::Int v[kTokens];
      for (int t = 0; t < kTokens; ++t) v[t] = T::kTernary ? isum[t] : V::Zero();
#pragma GCC unroll 8
      for (int i = part; i < part + kRun; ++i) {
        const int step = group * kSteps + i;
        const typename V::Int w = V::Load(panel.quants[step]);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          v[t] = V::DotBytes(v[t], w, V::Broadcast(x.q + t * x.q_stride + 4 * step));
        }
      }
      const typename V::Int s = V::Load(panel.scales[group]);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (T::kTernary) {
          isum[t] = v[t];
        } else if constexpr (kByWords<T>) {
          isum[t] = V::DotWords(isum[t], v[t], s);
        } else {
          isum[t] = V::Add(isum[t], V::Mul(v[t], s));
        }
      }
    }
  }
}

// kTokens tokens times one panel, added to their chains.
template <class V, class T, int kTokens>
inline void KPanelDot(const KPanel<V>& panel, const BlockTokens& x, typename V::Float* acc) {
  typename V::Int isum[kTokens];
  KPanelSums<V, T, kTokens>(panel, x, isum);
  const typename V::Float d = V::LoadFloats(panel.d);
  const typename V::Float m = T::kMin ? V::LoadFloats(panel.m) : V::FloatZero();
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    typename V::Int imin = V::Zero();
    if constexpr (T::kMin || T::kShift) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const typename V::Int sums = V::Broadcast(x.sums + t * x.sums_stride + 2 * i);
        imin = V::DotWords(imin, V::Load(panel.mins[i]), sums);
      }
      if constexpr (T::kShift) isum[t] = V::Sub(isum[t], imin);
    }
    acc[t] = KChain<V, T>(acc[t], x.scale[t * x.scale_stride], d, isum[t], m, imin);
  }
}

template <class V, class T>
void KTokenTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  typename V::Float acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = V::FloatZero();
  KPanel<V> panel;
  for (uint32_t b = 0; b < args.x.cols / 256; ++b) {
    ReadKPanel<V, T>(rows, uint64_t{b} * T::kBytes, &panel);
    const BlockTokens x(args.x, token, b, 256, 16);
    RunTokens<V::kTokens>(tokens, [&](auto run, uint32_t t) {
      KPanelDot<V, T, run.value>(panel, x.From(t), acc + t);
    });
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreRows<V>(args, token + t, rows, acc[t]);
}

template <class V, class T>
void KRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  constexpr FewTokensOfTile kFew[] = {KFewTokens<T, 1>, KFewTokens<T, 2>, KFewTokens<T, 3>,
                                      KFewTokens<T, 4>};
  WalkTiles<kTileRows, V::kLanes>(args, row_begin, row_end, kFew, KTokenTile<V, T>);
}

}  // namespace
}  // namespace sluice
