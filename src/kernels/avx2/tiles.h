// Row tiles and token tiles of the AVX2 matrix products.
//
// Contract: a tile is eight weight rows (the last one repeated when fewer are left; what it
// computes for the repeats is dropped). Each lane of a vector is one row, so out[t][r] is one
// lane's chain of operations and does not depend on its neighbours. Unnamed namespace: see simd.h.
#pragma once

#include "kernels/avx2/simd.h"
#include "kernels/ops.h"

namespace sluice {
namespace {

constexpr uint32_t kTileRows = 8;
// Tokens that share one taken-apart panel of weights: their accumulators (2 KiB) and one chunk of
// their activations (16 KiB) stay in the first-level cache beside the panel.
constexpr uint32_t kTileTokens = 64;

// A range of rows is cut into kRows (mostly eight) runs of consecutive rows; tile i holds the i-th
// row of each run. Every lane thus walks through memory in a straight line, and eight long streams
// are what the hardware prefetcher follows best: on Zen 2 one thread reads 13 GB/s in one stream
// and 21 GB/s in eight, while tiles of eight neighbouring short rows came to 6 GB/s. Rows left over
// by the division form one more tile that overlaps the last one (the same bits are written again),
// or one tile each if there are fewer than eight.
struct RowTile {
  const uint8_t* base;
  uint64_t stride;  // bytes between the rows of two lanes
  uint32_t row, row_stride;
};

struct RowTiles {
  uint32_t begin, end;
  uint32_t run;    // rows of a run
  uint32_t count;  // tiles
};

template <uint32_t kRows = kTileRows>
RowTiles TilesOf(uint32_t row_begin, uint32_t row_end) {
  const uint32_t rows = row_end > row_begin ? row_end - row_begin : 0;
  const uint32_t run = rows / kRows, rest = rows % kRows;
  return {row_begin, row_end, run, run > 0 ? run + (rest > 0) : rest};
}

template <uint32_t kRows = kTileRows>
RowTile TileAt(const MatmulArgs& args, const RowTiles& tiles, uint32_t i) {
  uint32_t row = tiles.begin + i, row_stride = tiles.run;
  if (tiles.run > 0 && i == tiles.run) {
    row = tiles.end - kRows;
    row_stride = 1;
  }
  return {args.weights + row * args.row_bytes, row_stride * args.row_bytes, row, row_stride};
}

inline void StoreTile(const MatmulArgs& args, uint64_t token, const RowTile& rows, __m256 sum) {
  float* out = args.out + token * args.out_stride;
  alignas(32) float lanes[kTileRows];
  _mm256_store_ps(lanes, sum);
  for (uint32_t i = 0; i < kTileRows; ++i) {
    const uint32_t r = rows.row + i * rows.row_stride;
    out[r] = args.bias ? lanes[i] + args.bias[r] : lanes[i];
  }
}

// Sums of the eight lanes of eight vectors.
inline __m256i SumLanes32(const __m256i* v) {
  const __m256i a = FoldPairs32(Fold32(v[0], v[1]), Fold32(v[2], v[3]));
  const __m256i b = FoldPairs32(Fold32(v[4], v[5]), Fold32(v[6], v[7]));
  return FoldLanes32(a, b);
}

// Sums of the sixteen lanes of eight vectors; half of a vector must fit int16.
inline __m256i SumLanes16(const __m256i* v) {
  const __m256i a = FoldPairs16(Fold16(v[0], v[1]), Fold16(v[2], v[3]));
  const __m256i b = FoldPairs16(Fold16(v[4], v[5]), Fold16(v[6], v[7]));
  const __m256i halves = FoldQuads16(a, b);
  return _mm256_add_epi32(_mm256_cvtepi16_epi32(LowLane(halves)),
                          _mm256_cvtepi16_epi32(HighLane(halves)));
}

// Products of 32 weight quants with 32 activations, summed in pairs. An int8 quant times an
// activation in -127..127 is computed as |w| * (x with the sign of w), which cannot saturate: 2 *
// 128 * 127 < 2^15.
template <bool kSigned>
inline __m256i PairProducts(__m256i w, __m256i x) {
  if constexpr (kSigned) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  } else {
    return _mm256_maddubs_epi16(w, x);
  }
}

}  // namespace
}  // namespace sluice
