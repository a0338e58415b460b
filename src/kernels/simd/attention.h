// Attention over paged K/V rows: online softmax, page by page, for every instruction set.
//
// Contract: as AttentionArgs says, for dimensions that are multiples of V::kLanes. Each (head,
// position) score is one chain over the dimensions and each output element one chain over the
// positions, whatever tile computes it. V is a vector type: see rows.h. Unnamed namespace: see
// tiles.h.
#pragma once

#include "kernels/ops.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/tiles.h"

namespace sluice {
namespace {

// Query heads handled together: their weights for a page (4 KiB) stay in the first-level cache.
constexpr uint32_t kHeads = 16;

struct HeadTile {
  const float* q;
  float* out;
  uint32_t count;
  float max[kHeads], sum[kHeads], keep[kHeads];
  alignas(64) float p[kHeads][kKvPageTokens];
};

// Calls f(h, Count<heads>, Count<width>) for up to four heads from head h on; `width` positions or
// vectors beside them fill the registers.
template <class V, class F>
inline void InFours(uint32_t count, const F& f) {
  constexpr int kNarrow = V::kRegisters >= 32 ? 4 : 2;
  for (uint32_t h = 0; h < count; h += 4) {
    switch (count - h) {
      case 1:
        f(h, Count<1>{}, Count<4>{});
        break;
      case 2:
        f(h, Count<2>{}, Count<4>{});
        break;
      case 3:
        f(h, Count<3>{}, Count<kNarrow>{});
        break;
      default:
        f(h, Count<4>{}, Count<kNarrow>{});
    }
  }
}

// Scores of kH heads for kP positions whose rows start at `row`.
template <class V, template <class> class Row, int kH, int kP>
inline void ScoreBlock(const AttentionArgs& args, const uint8_t* row, const float* q, float* p) {
  typename V::Vec acc[kP][kH];
#pragma GCC unroll 4
  for (int j = 0; j < kP; ++j) {
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) acc[j][h] = V::Zero();
  }
  for (uint32_t i = 0; i < args.dim_k; i += V::kLanes) {
    typename V::Vec k[kP];
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) k[j] = Row<V>::At(row + j * args.k_row, i);
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const typename V::Vec qs = V::Load(q + uint64_t(h) * args.dim_k + i);
#pragma GCC unroll 4
      for (int j = 0; j < kP; ++j) acc[j][h] = V::Fma(qs, k[j], acc[j][h]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kP; ++j) {
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) p[h * kKvPageTokens + j] = V::Sum(acc[j][h]) * args.scale;
  }
}

template <class V, template <class> class Row, int kH, int kP>
void ScoreHeads(const AttentionArgs& args, const uint8_t* rows, uint32_t n, const float* q,
                float* p) {
  uint32_t j = 0;
  for (; j + kP <= n; j += kP) ScoreBlock<V, Row, kH, kP>(args, rows + j * args.k_row, q, p + j);
  for (; j < n; ++j) ScoreBlock<V, Row, kH, 1>(args, rows + j * args.k_row, q, p + j);
}

// Turns a page's scores into weights; `keep` is the factor for what was summed before.
template <class V>
void PageWeights(uint32_t n, HeadTile* tile) {
  const float none = -__builtin_inff();
  for (uint32_t h = 0; h < tile->count; ++h) {
    float* p = tile->p[h];
    for (uint32_t j = n; j % V::kLanes != 0; ++j) p[j] = none;  // their weight is 0
    typename V::Vec most = V::Same(tile->max[h]);
    // NaN loses here and returns with its own weight.
    for (uint32_t j = 0; j < n; j += V::kLanes) most = V::MaxNumber(V::Load(p + j), most);
    const float max = V::Largest(most);
    const typename V::Vec m = V::Same(max);
    typename V::Vec sum = V::Zero();
    for (uint32_t j = 0; j < n; j += V::kLanes) {
      const typename V::Vec w = ExpOf<V>(V::Sub(V::Load(p + j), m));
      V::Store(p + j, w);
      sum = V::Add(sum, w);
    }
    tile->keep[h] = V::First(ExpOf<V>(V::Same(tile->max[h] - max)));
    tile->sum[h] = tile->sum[h] * tile->keep[h] + V::Sum(sum);
    tile->max[h] = max;
  }
}

// out = out * keep + sum over positions of p * v, for kH heads and kV vectors of dimensions from d
// on.
template <class V, template <class> class Row, int kH, int kV>
inline void ValueBlock(const AttentionArgs& args, const uint8_t* rows, uint32_t n, uint32_t d,
                       const float* p, const float* keep, float* out) {
  typename V::Vec acc[kH][kV];
#pragma GCC unroll 4
  for (int h = 0; h < kH; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      const float* at = out + uint64_t(h) * args.dim_v + d + V::kLanes * uint32_t(v);
      acc[h][v] = V::Mul(V::Load(at), V::Same(keep[h]));
    }
  }
  for (uint32_t j = 0; j < n; ++j, rows += args.v_row) {
    typename V::Vec value[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) value[v] = Row<V>::At(rows, d + V::kLanes * uint32_t(v));
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const typename V::Vec w = V::Same(p[uint32_t(h) * kKvPageTokens + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) acc[h][v] = V::Fma(w, value[v], acc[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kH; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      V::Store(out + uint64_t(h) * args.dim_v + d + V::kLanes * uint32_t(v), acc[h][v]);
    }
  }
}

template <class V, template <class> class Row, int kH, int kV>
void ValueHeads(const AttentionArgs& args, const uint8_t* rows, uint32_t n, const float* p,
                const float* keep, float* out) {
  constexpr uint32_t kWide = V::kLanes * kV;
  uint32_t d = 0;
  for (; d + kWide <= args.dim_v; d += kWide) {
    ValueBlock<V, Row, kH, kV>(args, rows, n, d, p, keep, out);
  }
  for (; d < args.dim_v; d += V::kLanes) {
    ValueBlock<V, Row, kH, 1>(args, rows, n, d, p, keep, out);
  }
}

template <class V, template <class> class KRow, template <class> class VRow>
void WalkPages(const AttentionArgs& args, HeadTile* tile) {
  for (uint32_t pos = args.first; pos <= args.last;) {
    const uint32_t page_end = (pos / kKvPageTokens + 1) * kKvPageTokens;
    const uint32_t end = page_end < args.last + 1 ? page_end : args.last + 1, n = end - pos;
    const uint8_t* page = args.pages[pos / kKvPageTokens];
    const uint64_t in_page = pos % kKvPageTokens;
    const uint8_t* keys = page + args.k_offset + in_page * args.k_row;
    const uint8_t* values = page + args.v_offset + in_page * args.v_row;
    InFours<V>(tile->count, [&](uint32_t h, auto heads, auto width) {
      ScoreHeads<V, KRow, heads.value, width.value>(args, keys, n,
                                                    tile->q + uint64_t{h} * args.dim_k, tile->p[h]);
    });
    PageWeights<V>(n, tile);
    InFours<V>(tile->count, [&](uint32_t h, auto heads, auto width) {
      ValueHeads<V, VRow, heads.value, width.value>(args, values, n, tile->p[h], tile->keep + h,
                                                    tile->out + uint64_t{h} * args.dim_v);
    });
    pos = end;
  }
}

template <class V>
void AttendTile(const AttentionArgs& args, HeadTile* tile) {
  switch (args.format) {
    case KvFormat::kF32:
      return WalkPages<V, RowF32, RowF32>(args, tile);
    case KvFormat::kF16:
      return WalkPages<V, RowF16, RowF16>(args, tile);
    case KvFormat::kQ8:
      return WalkPages<V, RowQ8, RowQ8>(args, tile);
    case KvFormat::kK8V4:
      // Latent attention reads its values from the K rows.
      if (args.v_offset == args.k_offset) return WalkPages<V, RowQ8, RowQ8>(args, tile);
      return WalkPages<V, RowQ8, RowQ4>(args, tile);
  }
}

template <class V>
void AttentionOf(const AttentionArgs& args) {
  for (uint32_t first = 0; first < args.group; first += kHeads) {
    HeadTile tile;
    tile.count = args.group - first < kHeads ? args.group - first : kHeads;
    tile.q = args.q + uint64_t{first} * args.dim_k;
    tile.out = args.out + uint64_t{first} * args.dim_v;
    for (uint32_t h = 0; h < tile.count; ++h) {
      // A sink is a logit without a value: the sum starts at exp(sink - max) = 1.
      tile.max[h] = args.sinks ? args.sinks[first + h] : -__builtin_inff();
      tile.sum[h] = args.sinks ? 1.0f : 0.0f;
    }
    const uint64_t elems = uint64_t{tile.count} * args.dim_v;
    for (uint64_t i = 0; i < elems; ++i) tile.out[i] = 0;
    AttendTile<V>(args, &tile);
    for (uint32_t h = 0; h < tile.count; ++h) {
      const typename V::Vec inverse = V::Same(1.0f / tile.sum[h]);
      float* out = tile.out + uint64_t{h} * args.dim_v;
      for (uint32_t i = 0; i < args.dim_v; i += V::kLanes) {
        V::Store(out + i, V::Mul(V::Load(out + i), inverse));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
