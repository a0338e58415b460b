// Attention over paged K/V rows: online softmax, page by page. Each (head, position) score is one
// chain over the dimensions and each output element one chain over the positions, whatever tile
// computes it.
#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::neon {
namespace {

// Query heads handled together: their weights for a page (4 KiB) stay in the first-level cache.
constexpr uint32_t kHeads = 16;

struct HeadTile {
  const float* q;
  float* out;
  uint32_t count;
  float max[kHeads], sum[kHeads], keep[kHeads];
  alignas(16) float p[kHeads][kKvPageTokens];
};

// Scores of kH heads for kP positions whose rows start at `row`.
template <class Row, int kH, int kP>
inline void ScoreBlock(const AttentionArgs& args, const uint8_t* row, const float* q, float* p) {
  F8 acc[kP][kH];
  for (int j = 0; j < kP; ++j) {
    for (int h = 0; h < kH; ++h) acc[j][h] = Zero8();
  }
  for (uint32_t i = 0; i < args.dim_k; i += 8) {
    F8 k[kP];
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) k[j] = Row::At(row + j * args.k_row, i);
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const F8 qs = LoadF8(q + uint64_t(h) * args.dim_k + i);
#pragma GCC unroll 4
      for (int j = 0; j < kP; ++j) acc[j][h] = Fuse(acc[j][h], qs, k[j]);
    }
  }
  for (int j = 0; j < kP; ++j) {
    for (int h = 0; h < kH; ++h) {
      p[h * kKvPageTokens + j] = Fold(acc[j][h]) * args.scale;
    }
  }
}

template <class Row, int kH, int kP>
void ScoreHeads(const AttentionArgs& args, const uint8_t* rows, uint32_t n, const float* q,
                float* p) {
  uint32_t j = 0;
  for (; j + kP <= n; j += kP) ScoreBlock<Row, kH, kP>(args, rows + j * args.k_row, q, p + j);
  for (; j < n; ++j) ScoreBlock<Row, kH, 1>(args, rows + j * args.k_row, q, p + j);
}

template <class Row>
void Scores(const AttentionArgs& args, const uint8_t* rows, uint32_t n, HeadTile* tile) {
  for (uint32_t h = 0; h < tile->count; h += 4) {
    const float* q = tile->q + uint64_t{h} * args.dim_k;
    switch (tile->count - h) {
      case 1:
        ScoreHeads<Row, 1, 4>(args, rows, n, q, tile->p[h]);
        break;
      case 2:
        ScoreHeads<Row, 2, 4>(args, rows, n, q, tile->p[h]);
        break;
      case 3:
        ScoreHeads<Row, 3, 2>(args, rows, n, q, tile->p[h]);
        break;
      default:
        ScoreHeads<Row, 4, 2>(args, rows, n, q, tile->p[h]);
    }
  }
}

// Turns a page's scores into weights; `keep` is the factor for what was summed before.
void Weights(uint32_t n, HeadTile* tile) {
  const float none = -__builtin_inff();
  for (uint32_t h = 0; h < tile->count; ++h) {
    float* p = tile->p[h];
    for (uint32_t j = n; j % 4 != 0; ++j) p[j] = none;  // their weight is 0
    float32x4_t most = vdupq_n_f32(tile->max[h]);
    // NaN loses here and returns with its own weight.
    for (uint32_t j = 0; j < n; j += 4) most = vmaxnmq_f32(most, vld1q_f32(p + j));
    const float max = vmaxnmvq_f32(most);
    const float32x4_t m = vdupq_n_f32(max);
    float32x4_t sum = vdupq_n_f32(0);
    for (uint32_t j = 0; j < n; j += 4) {
      const float32x4_t w = Exp(vsubq_f32(vld1q_f32(p + j), m));
      vst1q_f32(p + j, w);
      sum = vaddq_f32(sum, w);
    }
    tile->keep[h] = vgetq_lane_f32(Exp(vdupq_n_f32(tile->max[h] - max)), 0);
    tile->sum[h] = tile->sum[h] * tile->keep[h] + vaddvq_f32(sum);
    tile->max[h] = max;
  }
}

// out = out * keep + sum over positions of p * v, for kH heads and 8 * kV dimensions from d on.
template <class Row, int kH, int kV>
inline void ValueBlock(const AttentionArgs& args, const uint8_t* rows, uint32_t n, uint32_t d,
                       const float* p, const float* keep, float* out) {
  F8 acc[kH][kV];
  for (int h = 0; h < kH; ++h) {
    for (int v = 0; v < kV; ++v) {
      acc[h][v] = Times(LoadF8(out + uint64_t(h) * args.dim_v + d + 8 * v), keep[h]);
    }
  }
  for (uint32_t j = 0; j < n; ++j, rows += args.v_row) {
    F8 value[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) value[v] = Row::At(rows, d + 8 * uint32_t(v));
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const float w = p[uint32_t(h) * kKvPageTokens + j];
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) acc[h][v] = FuseScalar(acc[h][v], value[v], w);
    }
  }
  for (int h = 0; h < kH; ++h) {
    for (int v = 0; v < kV; ++v) {
      StoreF8(out + uint64_t(h) * args.dim_v + d + 8 * v, acc[h][v]);
    }
  }
}

template <class Row, int kH, int kV>
void ValueHeads(const AttentionArgs& args, const uint8_t* rows, uint32_t n, const float* p,
                const float* keep, float* out) {
  uint32_t d = 0;
  for (; d + 8 * kV <= args.dim_v; d += 8 * kV) {
    ValueBlock<Row, kH, kV>(args, rows, n, d, p, keep, out);
  }
  for (; d < args.dim_v; d += 8) ValueBlock<Row, kH, 1>(args, rows, n, d, p, keep, out);
}

template <class Row>
void Values(const AttentionArgs& args, const uint8_t* rows, uint32_t n, const HeadTile& tile) {
  for (uint32_t h = 0; h < tile.count; h += 4) {
    float* out = tile.out + uint64_t{h} * args.dim_v;
    switch (tile.count - h) {
      case 1:
        ValueHeads<Row, 1, 4>(args, rows, n, tile.p[h], tile.keep + h, out);
        break;
      case 2:
        ValueHeads<Row, 2, 4>(args, rows, n, tile.p[h], tile.keep + h, out);
        break;
      case 3:
        ValueHeads<Row, 3, 2>(args, rows, n, tile.p[h], tile.keep + h, out);
        break;
      default:
        ValueHeads<Row, 4, 2>(args, rows, n, tile.p[h], tile.keep + h, out);
    }
  }
}

template <class K, class V>
void Heads(const AttentionArgs& args, HeadTile* tile) {
  for (uint32_t pos = args.first; pos <= args.last;) {
    const uint32_t page_end = (pos / kKvPageTokens + 1) * kKvPageTokens;
    const uint32_t end = page_end < args.last + 1 ? page_end : args.last + 1;
    const uint8_t* page = args.pages[pos / kKvPageTokens];
    const uint64_t in_page = pos % kKvPageTokens;
    Scores<K>(args, page + args.k_offset + in_page * args.k_row, end - pos, tile);
    Weights(end - pos, tile);
    Values<V>(args, page + args.v_offset + in_page * args.v_row, end - pos, *tile);
    pos = end;
  }
}

void OneTile(const AttentionArgs& args, HeadTile* tile) {
  switch (args.format) {
    case KvFormat::kF32:
      return Heads<RowF32, RowF32>(args, tile);
    case KvFormat::kF16:
      return Heads<RowF16, RowF16>(args, tile);
    case KvFormat::kQ8:
      return Heads<RowQ8, RowQ8>(args, tile);
    case KvFormat::kK8V4:
      // Latent attention reads its values from the K rows.
      if (args.v_offset == args.k_offset) return Heads<RowQ8, RowQ8>(args, tile);
      return Heads<RowQ8, RowQ4>(args, tile);
  }
}

}  // namespace

void Attention(const AttentionArgs& args) {
  if (args.dim_k % 8 != 0 || args.dim_v % 8 != 0) return scalar::Attention(args);
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
    OneTile(args, &tile);
    for (uint32_t h = 0; h < tile.count; ++h) {
      const float inverse = 1.0f / tile.sum[h];
      float* out = tile.out + uint64_t{h} * args.dim_v;
      for (uint32_t i = 0; i < args.dim_v; i += 8) {
        StoreF8(out + i, Times(LoadF8(out + i), inverse));
      }
    }
  }
}

}  // namespace sluice::neon
