// Float activations: F32, F16 and BF16 weights, and any quantised type decoded on the fly.
//
// Order of the sum, for every number of rows and tokens: element k is fused into lane k % 16 of one
// accumulator per (token, row), k ascending; lane i and i + 8 are added, then FoldFloats adds the
// eight; a row's tail is padded with zeros.
#include "kernels/avx2/tiles.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/vectors.h"

namespace sluice::avx512 {
namespace {

constexpr uint32_t kRows = 4, kTokens = 6;  // of the register tile: 24 accumulators
constexpr uint32_t kTokenTile = 48;         // accumulators on the stack: 12 KiB
constexpr uint32_t kChunk = 256;            // elements decoded at a time; a multiple of every block

float Fold(__m512 v) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  return FoldFloats(_mm256_add_ps(_mm512_castps512_ps256(v), high));
}

void Store(const MatmulArgs& args, uint64_t token, const RowTile& rows, uint32_t count,
           const __m512* acc) {
  float* out = args.out + token * args.out_stride;
  for (uint32_t i = 0; i < count; ++i) {
    const float sum = Fold(acc[i]);
    const uint32_t r = rows.row + i * rows.row_stride;
    out[r] = args.bias ? sum + args.bias[r] : sum;
  }
}

// Sixteen weights as floats.
struct LoadF32 {
  static constexpr uint32_t kBytes = 4;
  static __m512 At(const uint8_t* p) { return _mm512_loadu_ps(p); }
};
struct LoadF16 {
  static constexpr uint32_t kBytes = 2;
  static __m512 At(const uint8_t* p) { return _mm512_cvtph_ps(Load256(p)); }
};
struct LoadBf16 {
  static constexpr uint32_t kBytes = 2;
  static __m512 At(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
  }
};

// The first n < 16 elements, then zeros.
template <class L>
__m512 LoadTail(const uint8_t* p, uint32_t n) {
  alignas(64) uint8_t bytes[64] = {};
  __builtin_memcpy(bytes, p, n * L::kBytes);
  return L::At(bytes);
}
__m512 LoadTail(const float* p, uint32_t n) {
  return LoadTail<LoadF32>(reinterpret_cast<const uint8_t*>(p), n);
}

// One token, float weights: converted in registers.
template <class L>
void OneToken(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const float* x = args.x.f32;
  const uint32_t cols = args.x.cols;
  const RowTiles tiles = TilesOf(row_begin, row_end);
  for (uint32_t tile = 0; tile < tiles.count; ++tile) {
    const RowTile rows = TileAt(args, tiles, tile);
    const uint8_t* w = rows.base;
    __m512 acc[kTileRows];
    for (uint32_t i = 0; i < kTileRows; ++i) acc[i] = Zmm::FloatZero();
    uint32_t c = 0;
    for (; c + 16 <= cols; c += 16, w += 16 * L::kBytes) {
      const __m512 xs = _mm512_loadu_ps(x + c);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kTileRows; ++i) {
        acc[i] = _mm512_fmadd_ps(L::At(w + i * rows.stride), xs, acc[i]);
      }
    }
    if (c < cols) {
      const __m512 xs = LoadTail(x + c, cols - c);
      for (uint32_t i = 0; i < kTileRows; ++i) {
        acc[i] = _mm512_fmadd_ps(LoadTail<L>(w + i * rows.stride, cols - c), xs, acc[i]);
      }
    }
    Store(args, 0, rows, kTileRows, acc);
  }
}

// n elements, padded with zeros to whole vectors.
template <class L>
void Convert(const uint8_t* p, float* out, uint32_t n) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(out + i, L::At(p + uint64_t{i} * L::kBytes));
  if (i < n) _mm512_storeu_ps(out + i, LoadTail<L>(p + uint64_t{i} * L::kBytes, n - i));
}

void Decode(WeightType type, const uint8_t* p, float* out, uint32_t n) {
  switch (type) {
    case WeightType::kF32:
      return Convert<LoadF32>(p, out, n);
    case WeightType::kF16:
      return Convert<LoadF16>(p, out, n);
    case WeightType::kBF16:
      return Convert<LoadBf16>(p, out, n);
    default:
      return DecodeRow(type, p, out, n);
  }
}

// n elements of kRows rows times kTokens_ activation rows; acc is [token][row].
template <uint32_t kTokens_>
void Block(const float (*w)[kChunk], const float* x, uint64_t x_stride, uint32_t n, __m512* acc) {
  __m512 sum[kTokens_][kRows];
  for (uint32_t t = 0; t < kTokens_; ++t) {
    for (uint32_t i = 0; i < kRows; ++i) sum[t][i] = acc[t * kRows + i];
  }
  uint32_t c = 0;
  for (; c + 16 <= n; c += 16) {
    __m512 ws[kRows];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) ws[i] = _mm512_loadu_ps(w[i] + c);
#pragma GCC unroll 6
    for (uint32_t t = 0; t < kTokens_; ++t) {
      const __m512 xs = _mm512_loadu_ps(x + t * x_stride + c);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) sum[t][i] = _mm512_fmadd_ps(ws[i], xs, sum[t][i]);
    }
  }
  if (c < n) {
    for (uint32_t i = 0; i < kRows; ++i) {
      const __m512 ws = LoadTail(w[i] + c, n - c);
      for (uint32_t t = 0; t < kTokens_; ++t) {
        sum[t][i] = _mm512_fmadd_ps(ws, LoadTail(x + t * x_stride + c, n - c), sum[t][i]);
      }
    }
  }
  for (uint32_t t = 0; t < kTokens_; ++t) {
    for (uint32_t i = 0; i < kRows; ++i) acc[t * kRows + i] = sum[t][i];
  }
}

void Tile(const MatmulArgs& args, uint32_t token, uint32_t tokens, const RowTile& rows) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const ActRows& a = args.x;
  alignas(64) float w[kRows][kChunk];
  __m512 acc[kTokenTile * kRows];
  for (uint32_t i = 0; i < tokens * kRows; ++i) acc[i] = Zmm::FloatZero();
  for (uint32_t c = 0; c < a.cols; c += kChunk) {
    const uint32_t n = a.cols - c < kChunk ? a.cols - c : kChunk;
    for (uint32_t i = 0; i < kRows; ++i) {
      Decode(args.type,
             rows.base + i * rows.stride + uint64_t{c} / info.block_elems * info.block_bytes, w[i],
             n);
    }
    const float* x = a.f32 + token * a.f32_stride + c;
    uint32_t t = 0;
    for (; t + kTokens <= tokens; t += kTokens) {
      Block<kTokens>(w, x + t * a.f32_stride, a.f32_stride, n, acc + t * kRows);
    }
    for (; t < tokens; ++t) {
      Block<1>(w, x + t * a.f32_stride, a.f32_stride, n, acc + t * kRows);
    }
  }
  for (uint32_t t = 0; t < tokens; ++t) Store(args, token + t, rows, kRows, acc + t * kRows);
}

}  // namespace

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const ActRows& x = args.x;
  if (x.rows == 1 && args.type == WeightType::kF32) {
    return OneToken<LoadF32>(args, row_begin, row_end);
  }
  if (x.rows == 1 && args.type == WeightType::kF16) {
    return OneToken<LoadF16>(args, row_begin, row_end);
  }
  if (x.rows == 1 && args.type == WeightType::kBF16) {
    return OneToken<LoadBf16>(args, row_begin, row_end);
  }
  const RowTiles tiles = TilesOf<kRows>(row_begin, row_end);
  for (uint32_t t = 0; t < x.rows; t += kTokenTile) {
    const uint32_t tokens = x.rows - t < kTokenTile ? x.rows - t : kTokenTile;
    for (uint32_t i = 0; i < tiles.count; ++i) Tile(args, t, tokens, TileAt<kRows>(args, tiles, i));
  }
}

}  // namespace sluice::avx512
