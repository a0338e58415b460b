// Float activations times F32, F16 and BF16 weights and any quantised type decoded on the fly, for
// every instruction set.
//
// Contract: order of the sum, for every number of rows and tokens: element k is fused into lane
// k % kLanes of one accumulator per (token, row), k ascending; V::Sum adds the lanes; a row's tail
// is padded with zeros. V is a vector type: see rows.h. Unnamed namespace: see tiles.h.
#pragma once

#include "kernels/simd/rows.h"
#include "kernels/simd/tiles.h"

namespace sluice {
namespace {

constexpr uint32_t kOneTokenRows = 8, kFloatRows = 4;  // of the register tiles
constexpr uint32_t kFloatTokens = 48;  // accumulators on the stack: 6 KiB, or 12 of 16 lanes
constexpr uint32_t kChunk = 256;       // elements decoded at a time; a multiple of every block

// The first n < kLanes elements, then zeros.
template <class V, template <class> class Row>
typename V::Vec LoadTail(const uint8_t* p, uint32_t n) {
  alignas(64) uint8_t bytes[V::kLanes * sizeof(float)] = {};
  __builtin_memcpy(bytes, p, n * Row<V>::kBytes);
  return Row<V>::At(bytes, 0);
}
template <class V>
typename V::Vec LoadTail(const float* p, uint32_t n) {
  return LoadTail<V, RowF32>(reinterpret_cast<const uint8_t*>(p), n);
}

// One token, float weights: converted in registers.
template <class V, template <class> class Row>
void OneToken(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const float* x = args.x.f32;
  const uint32_t cols = args.x.cols;
  const RowTiles tiles = TilesOf<kOneTokenRows>(args, row_begin, row_end);
  for (uint32_t tile = 0; tile < tiles.count; ++tile) {
    const RowTile rows = TileAt<kOneTokenRows>(args, tiles, tile);
    const uint8_t* w = rows.base;
    typename V::Vec acc[kOneTokenRows];  // in registers: unrolled wherever it is touched
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kOneTokenRows; ++i) acc[i] = V::Zero();
    uint32_t c = 0;
    for (; c + V::kLanes <= cols; c += V::kLanes, w += V::kLanes * Row<V>::kBytes) {
      const typename V::Vec xs = V::Load(x + c);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kOneTokenRows; ++i) {
        acc[i] = V::Fma(Row<V>::At(w + i * rows.stride, 0), xs, acc[i]);
      }
    }
    if (c < cols) {
      const typename V::Vec xs = LoadTail<V>(x + c, cols - c);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kOneTokenRows; ++i) {
        acc[i] = V::Fma(LoadTail<V, Row>(w + i * rows.stride, cols - c), xs, acc[i]);
      }
    }
    float sums[kOneTokenRows];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kOneTokenRows; ++i) sums[i] = V::Sum(acc[i]);
    StoreSums<kOneTokenRows>(args, 0, rows, sums);
  }
}

// n elements, padded with zeros to whole vectors.
template <class V, template <class> class Row>
void Convert(const uint8_t* p, float* out, uint32_t n) {
  uint32_t i = 0;
#pragma GCC unroll 4
  for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, Row<V>::At(p, i));
  if (i < n) V::Store(out + i, LoadTail<V, Row>(p + uint64_t{i} * Row<V>::kBytes, n - i));
}

template <class V>
void DecodeFloats(WeightType type, const uint8_t* p, float* out, uint32_t n) {
  switch (type) {
    case WeightType::kF32:
      return Convert<V, RowF32>(p, out, n);
    case WeightType::kF16:
      return Convert<V, RowF16>(p, out, n);
    case WeightType::kBF16:
      return Convert<V, RowBf16>(p, out, n);
    default:
      return DecodeRow(type, p, out, n);  // whole blocks: no tail
  }
}

// n elements of four rows times kTokens activation rows; acc is [token][row].
template <class V, uint32_t kTokens>
void FloatBlock(const float (*w)[kChunk], const float* x, uint64_t x_stride, uint32_t n,
                typename V::Vec* acc) {
  typename V::Vec sum[kTokens][kFloatRows];
#pragma GCC unroll 6
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kFloatRows; ++i) sum[t][i] = acc[t * kFloatRows + i];
  }
  uint32_t c = 0;
  for (; c + V::kLanes <= n; c += V::kLanes) {
    typename V::Vec xs[kTokens];
#pragma GCC unroll 6
    for (uint32_t t = 0; t < kTokens; ++t) xs[t] = V::Load(x + t * x_stride + c);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kFloatRows; ++i) {
      const typename V::Vec ws = V::Load(w[i] + c);
#pragma GCC unroll 6
      for (uint32_t t = 0; t < kTokens; ++t) sum[t][i] = V::Fma(ws, xs[t], sum[t][i]);
    }
  }
  if (c < n) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kFloatRows; ++i) {
      const typename V::Vec ws = V::Load(w[i] + c);  // padded
#pragma GCC unroll 6
      for (uint32_t t = 0; t < kTokens; ++t) {
        sum[t][i] = V::Fma(ws, LoadTail<V>(x + t * x_stride + c, n - c), sum[t][i]);
      }
    }
  }
#pragma GCC unroll 6
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kFloatRows; ++i) acc[t * kFloatRows + i] = sum[t][i];
  }
}

template <class V>
void FloatTile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const ActRows& a = args.x;
  alignas(64) float w[kFloatRows][kChunk];
  typename V::Vec acc[kFloatTokens * kFloatRows];
  for (uint32_t i = 0; i < tokens * kFloatRows; ++i) acc[i] = V::Zero();
  for (uint32_t c = 0; c < a.cols; c += kChunk) {
    const uint32_t n = a.cols - c < kChunk ? a.cols - c : kChunk;
    const uint8_t* at = rows.base + uint64_t{c} / info.block_elems * info.block_bytes;
    for (uint32_t i = 0; i < kFloatRows; ++i) {
      DecodeFloats<V>(args.type, at + i * rows.stride, w[i], n);
    }
    const float* x = a.f32 + token * a.f32_stride + c;
    uint32_t t = 0;
    for (; t + V::kTokens <= tokens; t += V::kTokens) {
      FloatBlock<V, V::kTokens>(w, x + t * a.f32_stride, a.f32_stride, n, acc + t * kFloatRows);
    }
    for (; t < tokens; ++t) {
      FloatBlock<V, 1>(w, x + t * a.f32_stride, a.f32_stride, n, acc + t * kFloatRows);
    }
  }
  for (uint32_t t = 0; t < tokens; ++t) {
    float sums[kFloatRows];
    for (uint32_t i = 0; i < kFloatRows; ++i) sums[i] = V::Sum(acc[t * kFloatRows + i]);
    StoreSums<kFloatRows>(args, token + t, rows, sums);
  }
}

template <class V>
void FloatProduct(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const ActRows& x = args.x;
  if (x.rows == 1 && args.type == WeightType::kF32) {
    return OneToken<V, RowF32>(args, row_begin, row_end);
  }
  if (x.rows == 1 && args.type == WeightType::kF16) {
    return OneToken<V, RowF16>(args, row_begin, row_end);
  }
  if (x.rows == 1 && args.type == WeightType::kBF16) {
    return OneToken<V, RowBf16>(args, row_begin, row_end);
  }
  const RowTiles tiles = TilesOf<kFloatRows>(args, row_begin, row_end);
  for (uint32_t t = 0; t < x.rows; t += kFloatTokens) {
    const uint32_t tokens = x.rows - t < kFloatTokens ? x.rows - t : kFloatTokens;
    for (uint32_t i = 0; i < tiles.count; ++i) {
      FloatTile<V>(args, t, tokens, TileAt<kFloatRows>(args, tiles, i));
    }
  }
}

}  // namespace
}  // namespace sluice
