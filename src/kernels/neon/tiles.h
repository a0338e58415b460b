// Row tiles of the aarch64 matrix products.
//
// Contract: a tile is four weight rows, one per 32-bit lane; the rows come from four equal runs of
// the range, so that each lane reads one long straight stream. Rows left over form one more tile
// that overlaps the last one (the same bits are written again), or one tile each if there are fewer
// than four (the row fills all lanes). Unnamed namespace: see simd.h.
#pragma once

#include "kernels/neon/simd.h"
#include "kernels/ops.h"

namespace sluice {
namespace {

constexpr uint32_t kTileRows = 4;
// Tokens that share one taken-apart block: their accumulators (1 KiB) stay in the nearest cache.
constexpr uint32_t kTileTokens = 64;

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

inline RowTiles TilesOf(uint32_t row_begin, uint32_t row_end) {
  const uint32_t rows = row_end > row_begin ? row_end - row_begin : 0;
  const uint32_t run = rows / kTileRows, rest = rows % kTileRows;
  return {row_begin, row_end, run, run > 0 ? run + (rest > 0) : rest};
}

inline RowTile TileAt(const MatmulArgs& args, const RowTiles& tiles, uint32_t i) {
  uint32_t row = tiles.begin + i, row_stride = tiles.run;
  if (tiles.run > 0 && i == tiles.run) {
    row = tiles.end - kTileRows;
    row_stride = 1;
  }
  return {args.weights + row * args.row_bytes, row_stride * args.row_bytes, row, row_stride};
}

inline void StoreTile(const MatmulArgs& args, uint64_t token, const RowTile& rows,
                      float32x4_t sum) {
  float* out = args.out + token * args.out_stride;
  float lanes[kTileRows];
  vst1q_f32(lanes, sum);
  for (uint32_t i = 0; i < kTileRows; ++i) {
    const uint32_t r = rows.row + i * rows.row_stride;
    out[r] = args.bias ? lanes[i] + args.bias[r] : lanes[i];
  }
}

}  // namespace
}  // namespace sluice
