// 32-element weight types: per block and row one exact integer, then
// acc = acc + dx * (d * isum [+ m * sum x]), block after block (scalar/int_block.h).
#include "kernels/avx2/legacy_types.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tiles.h"

namespace sluice::avx2 {
namespace {

// Blocks of a panel; a row's last panel may hold fewer.
constexpr uint32_t kPanelBlocks = 8;

// One step of the chain for eight rows; `isum` is of the quants as stored.
template <class T>
inline __m256 Accumulate(__m256 acc, float dx, int16_t sum, __m256 d, __m256i isum, __m256 m) {
  if constexpr (T::kOffset != 0) {
    isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(T::kOffset * sum));
  }
  __m256 value = _mm256_mul_ps(d, _mm256_cvtepi32_ps(isum));
  if constexpr (T::kMin) {
    value = _mm256_add_ps(value, _mm256_mul_ps(m, _mm256_set1_ps(static_cast<float>(sum))));
  }
  return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_set1_ps(dx), value));
}

template <class T>
inline __m256 MinsOf(const uint8_t* block, uint64_t stride) {
  if constexpr (T::kMin) {
    return T::Min(block, stride);
  } else {
    return _mm256_setzero_ps();
  }
}

// A few tokens: blocks are taken apart in registers.
template <class T, int kTokens>
void FewTokens(const MatmulArgs& args, const RowTile& rows) {
  const ActRows& a = args.x;
  __m256 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = _mm256_setzero_ps();
  for (uint32_t b = 0; b < a.cols / 32; ++b) {
    const uint8_t* block = rows.base + uint64_t{b} * T::kBytes;
    const int8_t* x = a.q + uint64_t{b} * 32;
    __m256i dots[kTokens][kTileRows];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const __m256i w = T::Quants(block + r * rows.stride);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        dots[t][r] = PairProducts<T::kSigned>(w, Load256(x + t * a.q_stride));
        if constexpr (T::kAcc < 8) {
          dots[t][r] = _mm256_madd_epi16(dots[t][r], _mm256_set1_epi16(1));
        }
      }
    }
    const __m256 d = T::Scale(block, rows.stride), m = MinsOf<T>(block, rows.stride);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i isum = T::kAcc == 8 ? SumLanes16(dots[t]) : SumLanes32(dots[t]);
      total[t] = Accumulate<T>(total[t], a.scale[t * a.scale_stride + b],
                               a.sums[t * a.sums_stride + b], d, isum, m);
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreTile(args, uint64_t(t), rows, total[t]);
}

// Eight rows of up to eight blocks, turned so that each 32-bit lane belongs to one row.
struct alignas(32) Panel {
  __m256i quants[kPanelBlocks][8];  // [block][step of 4]
  __m256 d[kPanelBlocks], m[kPanelBlocks];
};

template <class T>
void ReadPanel(const RowTile& rows, uint64_t at, uint32_t blocks, Panel* panel) {
  for (uint32_t b = 0; b < blocks; ++b, at += T::kBytes) {
    __m256i lines[kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) lines[r] = T::Quants(rows.base + r * rows.stride + at);
    Transpose8x8(lines, panel->quants[b]);
    panel->d[b] = T::Scale(rows.base + at, rows.stride);
    panel->m[b] = MinsOf<T>(rows.base + at, rows.stride);
  }
}

template <class T, int kTokens>
inline void PanelDot(const Panel& panel, uint32_t blocks, const BlockTokens& x, __m256* acc) {
  __m256 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = acc[t];
  for (uint32_t b = 0; b < blocks; ++b) {
    __m256i isum[kTokens];
#pragma GCC unroll 8
    for (int part = 0; part < 8; part += T::kAcc) {
      __m256i pairs[kTokens];
#pragma GCC unroll 8
      for (int i = part; i < part + T::kAcc; ++i) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const __m256i xs = _mm256_set1_epi32(LoadI32(x.q + t * x.q_stride + 32 * b + 4 * i));
          const __m256i p = PairProducts<T::kSigned>(panel.quants[b][i], xs);
          pairs[t] = i == part ? p : _mm256_add_epi16(pairs[t], p);
          KeepChain(pairs[t]);
        }
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const __m256i wide = _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1));
        isum[t] = part == 0 ? wide : _mm256_add_epi32(isum[t], wide);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      total[t] = Accumulate<T>(total[t], x.scale[t * x.scale_stride + b],
                               x.sums[t * x.sums_stride + b], panel.d[b], isum[t], panel.m[b]);
    }
  }
  for (int t = 0; t < kTokens; ++t) acc[t] = total[t];
}

template <class T>
void TokenTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  const uint32_t all_blocks = args.x.cols / 32;
  __m256 acc[kTileTokens];
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = _mm256_setzero_ps();
  Panel panel;
  for (uint32_t b = 0; b < all_blocks; b += kPanelBlocks) {
    const uint32_t blocks = all_blocks - b < kPanelBlocks ? all_blocks - b : kPanelBlocks;
    ReadPanel<T>(rows, uint64_t{b} * T::kBytes, blocks, &panel);
    const BlockTokens x(args.x, token, b, 32, 1);
    RunTokens<4>(tokens, [&](auto run, uint32_t t) {
      PanelDot<T, run.value>(panel, blocks, x.From(t), acc + t);
    });
  }
  for (uint32_t t = 0; t < tokens; ++t) StoreTile(args, token + t, rows, acc[t]);
}

template <class T>
void Rows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  constexpr FewTokensOfTile kFew[] = {FewTokens<T, 1>, FewTokens<T, 2>, FewTokens<T, 3>,
                                      FewTokens<T, 4>};
  WalkTiles<kTileRows, kTileRows>(args, row_begin, row_end, kFew, TokenTile<T>);
}

}  // namespace

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ4_0:
      return Rows<TypeQ4_0>(args, row_begin, row_end);
    case WeightType::kQ4_1:
      return Rows<TypeQ4_1>(args, row_begin, row_end);
    case WeightType::kQ5_0:
      return Rows<TypeQ5_0>(args, row_begin, row_end);
    case WeightType::kQ5_1:
      return Rows<TypeQ5_1>(args, row_begin, row_end);
    case WeightType::kQ8_0:
      return Rows<TypeQ8_0>(args, row_begin, row_end);
    case WeightType::kIQ4_NL:
      return Rows<TypeIQ4_NL>(args, row_begin, row_end);
    default:
      return Rows<TypeMXFP4>(args, row_begin, row_end);
  }
}

}  // namespace sluice::avx2
