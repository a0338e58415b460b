// Attention over paged K/V rows: online softmax, page by page, for every instruction set.
//
// Contract: as AttentionArgs says, for dimensions that are multiples of V::kLanes. Each (query,
// position) score is one chain over the dimensions and each output element one chain over the
// positions, whatever tile computes it. V is a vector type: see rows.h. Unnamed namespace: see
// tiles.h.
//
// One token: its heads share what is loaded of a page. More: blocks of tokens take the pages that
// all of them see together, each page made floats once, and then each token its last ones alone.
#pragma once

#include "kernels/ops.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/tiles.h"

namespace sluice {
namespace {

// Query heads of one token handled together: their weights for a page (4 KiB) stay in the
// first-level cache.
constexpr uint32_t kHeads = 16;
// Tokens of a block, and heads: their weights for a page are 16 KiB.
constexpr uint32_t kBlockRows = 16, kBlockHeads = 4;
// Floats of a page decoded at once, and value dimensions: 32 KiB.
constexpr uint32_t kDecoded = 8192, kValueDims = kDecoded / kKvPageTokens;

// Queries that see the same positions: heads of a token or tokens of a head. Strides in floats.
struct Queries {
  const float* q;
  uint64_t q_stride;
  float* out;
  uint64_t out_stride;
  float* p;  // [count][kKvPageTokens], scores and then weights of a page
  float *max, *sum, *keep;
  uint32_t state_stride;
  uint32_t count;
};

// Rows of K or V side by side.
struct RowRun {
  const uint8_t* at;
  uint64_t row_bytes;
  uint32_t n;
};

template <class V, template <class> class Row>
constexpr int kNarrow = V::kRegisters >= 32 ? 4 : 2;
template <class V>  // no registers are needed to decode
constexpr int kNarrow<V, RowF32> = V::kRegisters >= 32 ? 4 : 3;

// Calls f(h, Count<queries>, Count<width>) for up to four queries from h on; `width` positions or
// vectors beside them fill the registers.
template <int kWidth, class F>
inline void InFours(uint32_t count, const F& f) {
  for (uint32_t h = 0; h < count; h += 4) {
    switch (count - h) {
      case 1:
        f(h, Count<1>{}, Count<4>{});
        break;
      case 2:
        f(h, Count<2>{}, Count<4>{});
        break;
      case 3:
        f(h, Count<3>{}, Count<kWidth>{});
        break;
      default:
        f(h, Count<4>{}, Count<kWidth>{});
    }
  }
}

// Calls f(j, Count<k>) for runs of at most kMost that cover [0, n), few of them alone.
template <int kMost, class F>
inline void InRuns(uint32_t n, const F& f) {
  uint32_t j = 0;
  for (; n - j >= kMost && (kMost != 3 || n - j != 4); j += kMost) f(j, Count<kMost>{});
  if constexpr (kMost > 2) {
    for (; n - j >= 2; j += 2) f(j, Count<2>{});
  }
  for (; j < n; ++j) f(j, Count<1>{});
}

// Scores of kH queries for kP positions whose rows start at `row`.
template <class V, template <class> class Row, int kH, int kP>
inline void ScoreBlock(const AttentionArgs& args, const uint8_t* row, uint64_t row_bytes,
                       const float* q, uint64_t q_stride, float* p) {
  typename V::Vec acc[kP][kH];
#pragma GCC unroll 4
  for (int j = 0; j < kP; ++j) {
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) acc[j][h] = V::Zero();
  }
  for (uint32_t i = 0; i < args.dim_k; i += V::kLanes) {
    typename V::Vec k[kP];
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) k[j] = Row<V>::At(row + uint64_t(j) * row_bytes, i);
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const typename V::Vec qs = V::Load(q + uint64_t(h) * q_stride + i);
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

// Scores of positions [first, first + keys.n) of a page.
template <class V, template <class> class Row>
void Scores(const AttentionArgs& args, const Queries& t, const RowRun& keys, uint32_t first) {
  InFours<kNarrow<V, Row>>(t.count, [&](uint32_t h, auto queries, auto width) {
    const float* q = t.q + h * t.q_stride;
    float* p = t.p + h * kKvPageTokens + first;
    InRuns<width.value>(keys.n, [&](uint32_t j, auto positions) {
      ScoreBlock<V, Row, queries.value, positions.value>(args, keys.at + j * keys.row_bytes,
                                                         keys.row_bytes, q, t.q_stride, p + j);
    });
  });
}

// Turns a page's scores into weights; `keep` is the factor for what was summed before.
template <class V>
void PageWeights(uint32_t n, const Queries& t) {
  const float none = -__builtin_inff();
  for (uint32_t h = 0; h < t.count; ++h) {
    float* p = t.p + h * kKvPageTokens;
    const uint32_t s = h * t.state_stride;
    for (uint32_t j = n; j % V::kLanes != 0; ++j) p[j] = none;  // their weight is 0
    typename V::Vec most = V::Same(t.max[s]);
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
    t.keep[s] = V::First(ExpOf<V>(V::Same(t.max[s] - max)));
    t.sum[s] = t.sum[s] * t.keep[s] + V::Sum(sum);
    t.max[s] = max;
  }
}

// out = out * keep + sum over positions of p * v, for kH queries and kV vectors of dimensions.
template <class V, template <class> class Row, int kH, int kV>
inline void ValueBlock(const RowRun& values, uint32_t d, const Queries& t, uint32_t h, float* out) {
  typename V::Vec acc[kH][kV];
#pragma GCC unroll 4
  for (int i = 0; i < kH; ++i) {
    const typename V::Vec keep = V::Same(t.keep[(h + uint32_t(i)) * t.state_stride]);
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      acc[i][v] = V::Mul(V::Load(out + uint64_t(i) * t.out_stride + V::kLanes * uint32_t(v)), keep);
    }
  }
  const float* p = t.p + h * kKvPageTokens;
  const uint8_t* row = values.at;
  for (uint32_t j = 0; j < values.n; ++j, row += values.row_bytes) {
    typename V::Vec value[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) value[v] = Row<V>::At(row, d + V::kLanes * uint32_t(v));
#pragma GCC unroll 4
    for (int i = 0; i < kH; ++i) {
      const typename V::Vec w = V::Same(p[uint32_t(i) * kKvPageTokens + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) acc[i][v] = V::Fma(w, value[v], acc[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kH; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      V::Store(out + uint64_t(i) * t.out_stride + V::kLanes * uint32_t(v), acc[i][v]);
    }
  }
}

// Dimensions [0, dims) of the rows, which are dimensions [first, first + dims) of the outputs.
template <class V, template <class> class Row>
void Values(const Queries& t, const RowRun& values, uint32_t first, uint32_t dims) {
  InFours<kNarrow<V, Row>>(t.count, [&](uint32_t h, auto queries, auto width) {
    float* out = t.out + h * t.out_stride + first;
    InRuns<width.value>(dims / V::kLanes, [&](uint32_t i, auto vectors) {
      const uint32_t d = i * V::kLanes;
      ValueBlock<V, Row, queries.value, vectors.value>(values, d, t, h, out + d);
    });
  });
}

// Positions [first, last] for queries of one token.
template <class V, template <class> class KRow, template <class> class VRow>
void WalkPages(const AttentionArgs& args, const Queries& t, uint32_t first, uint32_t last) {
  for (uint32_t pos = first; pos <= last;) {
    const uint32_t page_end = (pos / kKvPageTokens + 1) * kKvPageTokens;
    const uint32_t end = page_end < last + 1 ? page_end : last + 1, n = end - pos;
    const uint8_t* page = args.pages[pos / kKvPageTokens];
    const uint64_t in_page = pos % kKvPageTokens;
    Scores<V, KRow>(args, t, {page + args.k_offset + in_page * args.k_row, args.k_row, n}, 0);
    PageWeights<V>(n, t);
    Values<V, VRow>(t, {page + args.v_offset + in_page * args.v_row, args.v_row, n}, 0, args.dim_v);
    pos = end;
  }
}

// A sink is a logit without a value: the sum starts at exp(sink - max) = 1.
inline void Begin(const AttentionArgs& args, uint32_t head, float* max, float* sum, float* out) {
  *max = args.sinks ? args.sinks[head] : -__builtin_inff();
  *sum = args.sinks ? 1.0f : 0.0f;
  for (uint32_t i = 0; i < args.dim_v; ++i) out[i] = 0;
}

template <class V>
void Finish(const AttentionArgs& args, float sum, float* out) {
  const typename V::Vec inverse = V::Same(1.0f / sum);
  for (uint32_t i = 0; i < args.dim_v; i += V::kLanes)
    V::Store(out + i, V::Mul(V::Load(out + i), inverse));
}

template <class V, template <class> class KRow, template <class> class VRow>
void OneRow(const AttentionArgs& args, uint64_t row) {
  float max[kHeads], sum[kHeads], keep[kHeads];
  alignas(64) float p[kHeads * kKvPageTokens];
  for (uint32_t first = 0; first < args.group; first += kHeads) {
    const uint32_t count = args.group - first < kHeads ? args.group - first : kHeads;
    const Queries t{args.q + row * args.q_stride + uint64_t{first} * args.dim_k,
                    args.dim_k,
                    args.out + row * args.out_stride + uint64_t{first} * args.dim_v,
                    args.dim_v,
                    p,
                    max,
                    sum,
                    keep,
                    1,
                    count};
    for (uint32_t h = 0; h < count; ++h)
      Begin(args, first + h, max + h, sum + h, t.out + uint64_t{h} * args.dim_v);
    WalkPages<V, KRow, VRow>(args, t, args.first, args.last + static_cast<uint32_t>(row));
    for (uint32_t h = 0; h < count; ++h) Finish<V>(args, sum[h], t.out + uint64_t{h} * args.dim_v);
  }
}

// Rows [first, first + rows) and a few heads of them.
struct RowBlock {
  uint64_t first;
  uint32_t rows, head, heads;
  float max[kBlockHeads * kBlockRows], sum[kBlockHeads * kBlockRows],
      keep[kBlockHeads * kBlockRows];
  alignas(64) float p[kBlockHeads * kBlockRows * kKvPageTokens];
  alignas(64) float decoded[kDecoded];

  // The rows of one head.
  Queries OfHead(const AttentionArgs& args, uint32_t h) {
    const uint32_t s = h * kBlockRows;
    return {args.q + first * args.q_stride + uint64_t{head + h} * args.dim_k,
            args.q_stride,
            args.out + first * args.out_stride + uint64_t{head + h} * args.dim_v,
            args.out_stride,
            p + s * kKvPageTokens,
            max + s,
            sum + s,
            keep + s,
            1,
            rows};
  }
  // The heads of one row.
  Queries OfRow(const AttentionArgs& args, uint32_t row) {
    return {args.q + (first + row) * args.q_stride + uint64_t{head} * args.dim_k,
            args.dim_k,
            args.out + (first + row) * args.out_stride + uint64_t{head} * args.dim_v,
            args.dim_v,
            p,
            max + row,
            sum + row,
            keep + row,
            kBlockRows,
            heads};
  }
};

// Elements [begin, begin + count) of each row as floats, side by side.
template <class V, template <class> class Row>
RowRun Decode(const RowRun& rows, uint32_t begin, uint32_t count, float* to) {
  for (uint32_t j = 0; j < rows.n; ++j) {
    const uint8_t* row = rows.at + j * rows.row_bytes;
    for (uint32_t i = 0; i < count; i += V::kLanes)
      V::Store(to + uint64_t{j} * count + i, Row<V>::At(row, begin + i));
  }
  return {reinterpret_cast<const uint8_t*>(to), count * sizeof(float), rows.n};
}

// A page that all rows of the block see.
template <class V, template <class> class KRow, template <class> class VRow>
void WholePage(const AttentionArgs& args, const uint8_t* page, RowBlock* b) {
  const uint32_t span = kDecoded / args.dim_k;
  for (uint32_t j = 0; j < kKvPageTokens; j += span) {
    const uint32_t n = kKvPageTokens - j < span ? kKvPageTokens - j : span;
    const RowRun keys = Decode<V, KRow>({page + args.k_offset + j * args.k_row, args.k_row, n}, 0,
                                        args.dim_k, b->decoded);
    for (uint32_t h = 0; h < b->heads; ++h) Scores<V, RowF32>(args, b->OfHead(args, h), keys, j);
  }
  for (uint32_t h = 0; h < b->heads; ++h) PageWeights<V>(kKvPageTokens, b->OfHead(args, h));
  for (uint32_t d = 0; d < args.dim_v; d += kValueDims) {
    const uint32_t dims = args.dim_v - d < kValueDims ? args.dim_v - d : kValueDims;
    const RowRun values =
        Decode<V, VRow>({page + args.v_offset, args.v_row, kKvPageTokens}, d, dims, b->decoded);
    for (uint32_t h = 0; h < b->heads; ++h) Values<V, RowF32>(b->OfHead(args, h), values, d, dims);
  }
}

template <class V, template <class> class KRow, template <class> class VRow>
void ManyRows(const AttentionArgs& args, RowBlock* b) {
  for (uint32_t h = 0; h < b->heads; ++h) {
    const Queries t = b->OfHead(args, h);
    for (uint32_t r = 0; r < b->rows; ++r)
      Begin(args, b->head + h, t.max + r, t.sum + r, t.out + r * t.out_stride);
  }
  const auto last = args.last + static_cast<uint32_t>(b->first);  // of the first row
  const uint32_t whole = (last + 1) / kKvPageTokens;
  for (uint32_t page = 0; page < whole; ++page) WholePage<V, KRow, VRow>(args, args.pages[page], b);
  for (uint32_t r = 0; r < b->rows; ++r)
    WalkPages<V, KRow, VRow>(args, b->OfRow(args, r), whole * kKvPageTokens, last + r);
  for (uint32_t h = 0; h < b->heads; ++h) {
    const Queries t = b->OfHead(args, h);
    for (uint32_t r = 0; r < b->rows; ++r) Finish<V>(args, t.sum[r], t.out + r * t.out_stride);
  }
}

template <class V, template <class> class KRow, template <class> class VRow>
void AllRows(const AttentionArgs& args) {
  // A few short rows are better alone, and so are rows too long to be decoded.
  if (args.rows < 4 || args.last < kKvPageTokens || args.dim_k > kDecoded) {
    for (uint32_t row = 0; row < args.rows; ++row) OneRow<V, KRow, VRow>(args, row);
    return;
  }
  RowBlock b;
  for (b.first = 0; b.first < args.rows; b.first += kBlockRows) {
    const auto left = static_cast<uint32_t>(args.rows - b.first);
    b.rows = left < kBlockRows ? left : kBlockRows;
    for (b.head = 0; b.head < args.group; b.head += kBlockHeads) {
      b.heads = args.group - b.head < kBlockHeads ? args.group - b.head : kBlockHeads;
      ManyRows<V, KRow, VRow>(args, &b);
    }
  }
}

template <class V>
void AttentionOf(const AttentionArgs& args) {
  switch (args.format) {
    case KvFormat::kF32:
      return AllRows<V, RowF32, RowF32>(args);
    case KvFormat::kF16:
      return AllRows<V, RowF16, RowF16>(args);
    case KvFormat::kQ8:
      return AllRows<V, RowQ8, RowQ8>(args);
    case KvFormat::kK8V4:
      // Latent attention reads its values from the K rows.
      if (args.v_offset == args.k_offset) return AllRows<V, RowQ8, RowQ8>(args);
      return AllRows<V, RowQ8, RowQ4>(args);
  }
}

}  // namespace
}  // namespace sluice
