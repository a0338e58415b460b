// Float activations: F32, F16 and BF16 weights, and any quantised type decoded on the fly.
//
// Order of the sum, for every number of rows and tokens: element k is fused into lane k % 8 of one
// accumulator per (token, row), k ascending; FoldFloats adds the lanes; a row's tail is padded with
// zeros.
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/simd.h"
#include "kernels/avx2/tiles.h"

namespace sluice::avx2 {
namespace {

constexpr uint32_t kRows = 4, kTokens = 3;  // of the register tile: 12 accumulators
constexpr uint32_t kTokenTile = 64;         // accumulators on the stack: 8 KiB
constexpr uint32_t kChunk = 256;            // elements decoded at a time; a multiple of every block

void Store(const MatmulArgs& args, uint64_t token, const RowTile& rows, uint32_t count,
           const __m256* acc) {
  float* out = args.out + token * args.out_stride;
  for (uint32_t i = 0; i < count; ++i) {
    const float sum = FoldFloats(acc[i]);
    const uint32_t r = rows.row + i * rows.row_stride;
    out[r] = args.bias ? sum + args.bias[r] : sum;
  }
}

// Eight weights as floats.
struct LoadF32 {
  static constexpr uint32_t kBytes = 4;
  static __m256 At(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 {
  static constexpr uint32_t kBytes = 2;
  static __m256 At(const uint8_t* p) { return _mm256_cvtph_ps(Load128(p)); }
};
struct LoadBf16 {
  static constexpr uint32_t kBytes = 2;
  static __m256 At(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
  }
};

// The first n < 8 elements, then zeros.
template <class L>
__m256 LoadTail(const uint8_t* p, uint32_t n) {
  alignas(32) uint8_t bytes[32] = {};
  __builtin_memcpy(bytes, p, n * L::kBytes);
  return L::At(bytes);
}
__m256 LoadTail(const float* p, uint32_t n) {
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
    __m256 acc[kTileRows];
    for (uint32_t i = 0; i < kTileRows; ++i) acc[i] = _mm256_setzero_ps();
    uint32_t c = 0;
    for (; c + 8 <= cols; c += 8, w += 8 * L::kBytes) {
      const __m256 xs = _mm256_loadu_ps(x + c);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kTileRows; ++i) {
        acc[i] = _mm256_fmadd_ps(L::At(w + i * rows.stride), xs, acc[i]);
      }
    }
    if (c < cols) {
      const __m256 xs = LoadTail(x + c, cols - c);
      for (uint32_t i = 0; i < kTileRows; ++i) {
        acc[i] = _mm256_fmadd_ps(LoadTail<L>(w + i * rows.stride, cols - c), xs, acc[i]);
      }
    }
    Store(args, 0, rows, kTileRows, acc);
  }
}

template <class L>
void Convert(const uint8_t* p, float* out, uint32_t n) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, L::At(p + uint64_t{i} * L::kBytes));
  for (uint32_t j = i; j < n; ++j) out[j] = 0;
  if (i < n) {
    alignas(32) float tail[8];
    _mm256_store_ps(tail, LoadTail<L>(p + uint64_t{i} * L::kBytes, n - i));
    for (uint32_t j = i; j < n; ++j) out[j] = tail[j - i];
  }
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
void Block(const float* const* w, const float* x, uint64_t x_stride, uint32_t n, __m256* acc) {
  __m256 sum[kTokens_][kRows];
  for (uint32_t t = 0; t < kTokens_; ++t) {
    for (uint32_t i = 0; i < kRows; ++i) sum[t][i] = acc[t * kRows + i];
  }
  uint32_t c = 0;
  for (; c + 8 <= n; c += 8) {
    __m256 xs[kTokens_];
#pragma GCC unroll 3
    for (uint32_t t = 0; t < kTokens_; ++t) xs[t] = _mm256_loadu_ps(x + t * x_stride + c);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) {
      const __m256 ws = _mm256_loadu_ps(w[i] + c);
#pragma GCC unroll 3
      for (uint32_t t = 0; t < kTokens_; ++t) sum[t][i] = _mm256_fmadd_ps(ws, xs[t], sum[t][i]);
    }
  }
  if (c < n) {
    for (uint32_t i = 0; i < kRows; ++i) {
      const __m256 ws = LoadTail(w[i] + c, n - c);
      for (uint32_t t = 0; t < kTokens_; ++t) {
        sum[t][i] = _mm256_fmadd_ps(ws, LoadTail(x + t * x_stride + c, n - c), sum[t][i]);
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
  alignas(32) float buffer[kRows][kChunk];
  __m256 acc[kTokenTile * kRows];
  for (uint32_t i = 0; i < tokens * kRows; ++i) acc[i] = _mm256_setzero_ps();
  for (uint32_t c = 0; c < a.cols; c += kChunk) {
    const uint32_t n = a.cols - c < kChunk ? a.cols - c : kChunk;
    const float* w[kRows];
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint8_t* at =
          rows.base + i * rows.stride + uint64_t{c} / info.block_elems * info.block_bytes;
      w[i] = buffer[i];
      Decode(args.type, at, buffer[i], n);
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

}  // namespace sluice::avx2
