// Attention over paged K/V rows: online softmax, page by page. Each (head, position) score is one
// chain over the dimensions and each output element one chain over the positions, whatever tile
// computes it.
#include "kernels/avx2/exp.h"
#include "kernels/avx2/leaves.h"
#include "kernels/avx2/simd.h"
#include "kernels/kv_row.h"
#include "kernels/scalar/leaves.h"

namespace sluice::avx2 {
namespace {

// Query heads handled together: their weights for a page (4 KiB) stay in the first-level cache.
constexpr uint32_t kHeads = 16;

struct HeadTile {
  const float* q;
  float* out;
  uint32_t count;
  float max[kHeads], sum[kHeads], keep[kHeads];
  alignas(32) float p[kHeads][kKvPageTokens];
};

// Eight elements of a row from element i (a multiple of 8) on.
struct RowF32 {
  static __m256 At(const uint8_t* row, uint32_t i) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + i);
  }
};
struct RowF16 {
  static __m256 At(const uint8_t* row, uint32_t i) { return _mm256_cvtph_ps(Load128(row + 2 * i)); }
};
inline __m256 HalfEverywhere(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(LoadU16(p))));
}
struct RowQ8 {
  static __m256 At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ8Block);
    const __m256i q = _mm256_cvtepi8_epi32(Load64(block + 2 + i % kKvBlockElems));
    return _mm256_mul_ps(HalfEverywhere(block), _mm256_cvtepi32_ps(q));
  }
};
struct RowQ4 {
  static __m256 At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ4Block);
    const __m128i bytes = Load64(block + 4 + i % 16);
    const __m128i nibbles = i % kKvBlockElems < 16 ? bytes : _mm_srli_epi16(bytes, 4);
    const __m256i q = _mm256_cvtepu8_epi32(_mm_and_si128(nibbles, _mm_set1_epi8(15)));
    return _mm256_add_ps(HalfEverywhere(block + 2),
                         _mm256_mul_ps(HalfEverywhere(block), _mm256_cvtepi32_ps(q)));
  }
};

// Scores of kH heads for kP positions whose rows start at `row`.
template <class Row, int kH, int kP>
inline void ScoreBlock(const AttentionArgs& args, const uint8_t* row, const float* q, float* p) {
  __m256 acc[kP][kH];
  for (int j = 0; j < kP; ++j) {
    for (int h = 0; h < kH; ++h) acc[j][h] = _mm256_setzero_ps();
  }
  for (uint32_t i = 0; i < args.dim_k; i += 8) {
    __m256 k[kP];
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) k[j] = Row::At(row + j * args.k_row, i);
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const __m256 qs = _mm256_loadu_ps(q + uint64_t(h) * args.dim_k + i);
#pragma GCC unroll 4
      for (int j = 0; j < kP; ++j) acc[j][h] = _mm256_fmadd_ps(qs, k[j], acc[j][h]);
    }
  }
  for (int j = 0; j < kP; ++j) {
    for (int h = 0; h < kH; ++h) {
      p[h * kKvPageTokens + j] = FoldFloats(acc[j][h]) * args.scale;
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

inline float MaxLane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Turns a page's scores into weights; `keep` is the factor for what was summed before.
void Weights(uint32_t n, HeadTile* tile) {
  const float none = -__builtin_inff();
  for (uint32_t h = 0; h < tile->count; ++h) {
    float* p = tile->p[h];
    for (uint32_t j = n; j % 8 != 0; ++j) p[j] = none;  // their weight is 0
    __m256 most = _mm256_set1_ps(tile->max[h]);
    for (uint32_t j = 0; j < n; j += 8) most = _mm256_max_ps(_mm256_load_ps(p + j), most);
    const float max = MaxLane(most);
    const __m256 m = _mm256_set1_ps(max);
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t j = 0; j < n; j += 8) {
      const __m256 w = Exp(_mm256_sub_ps(_mm256_load_ps(p + j), m));
      _mm256_store_ps(p + j, w);
      sum = _mm256_add_ps(sum, w);
    }
    tile->keep[h] = _mm256_cvtss_f32(Exp(_mm256_set1_ps(tile->max[h] - max)));
    tile->sum[h] = tile->sum[h] * tile->keep[h] + FoldFloats(sum);
    tile->max[h] = max;
  }
}

// out = out * keep + sum over positions of p * v, for kH heads and 8 * kV dimensions from d on.
template <class Row, int kH, int kV>
inline void ValueBlock(const AttentionArgs& args, const uint8_t* rows, uint32_t n, uint32_t d,
                       const float* p, const float* keep, float* out) {
  __m256 acc[kH][kV];
  for (int h = 0; h < kH; ++h) {
    for (int v = 0; v < kV; ++v) {
      acc[h][v] = _mm256_mul_ps(_mm256_loadu_ps(out + uint64_t(h) * args.dim_v + d + 8 * v),
                                _mm256_set1_ps(keep[h]));
    }
  }
  for (uint32_t j = 0; j < n; ++j, rows += args.v_row) {
    __m256 value[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) value[v] = Row::At(rows, d + 8 * uint32_t(v));
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) {
      const __m256 w = _mm256_set1_ps(p[uint32_t(h) * kKvPageTokens + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) acc[h][v] = _mm256_fmadd_ps(w, value[v], acc[h][v]);
    }
  }
  for (int h = 0; h < kH; ++h) {
    for (int v = 0; v < kV; ++v) {
      _mm256_storeu_ps(out + uint64_t(h) * args.dim_v + d + 8 * v, acc[h][v]);
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
      const __m256 inverse = _mm256_set1_ps(1.0f / tile.sum[h]);
      float* out = tile.out + uint64_t{h} * args.dim_v;
      for (uint32_t i = 0; i < args.dim_v; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(out + i), inverse));
      }
    }
  }
}

}  // namespace sluice::avx2
