// Row tiles and token tiles of the matrix products, for every instruction set.
//
// Contract: a tile is kRows weight rows from kRows equal runs of a range, so that what each lane
// reads is one long straight stream: on Zen 2 one thread reads 13 GB/s in one stream and 21 GB/s in
// eight, while tiles of eight neighbouring short rows came to 6 GB/s. Rows left over by the
// division form tiles of neighbours, of which the last one overlaps the one before it (the same
// bits are written again), or one tile each if there are fewer than kRows (the row fills all
// lanes). out[t][r] is one lane's chain of operations and does not depend on its neighbours.
// Unnamed namespace: no function compiled for a newer processor can be merged into common code.
#pragma once

#include "kernels/ops.h"

namespace sluice {
namespace {

// Tokens that share one taken-apart panel of weights: their accumulators and one chunk of their
// activations (16 KiB) stay in the first-level cache beside the panel.
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

// Whether kRows streams that start `stride` bytes apart keep out of each other's way in a
// first-level cache, whose sets repeat every 4 KiB. The runs of an expert of 768 x 2048 at 4 bits
// lie exactly 27 pages apart: 15.9 GB/s on one thread of Zen 2, 17.2 with runs one row shorter.
template <uint32_t kRows>
constexpr bool KeepApart(uint64_t stride) {
  constexpr uint64_t kPeriod = 4096, kApart = kPeriod / kRows / 2;
  for (uint32_t lane = 1; lane < kRows; ++lane) {
    const uint64_t at = lane * stride % kPeriod;
    if (at < kApart || at > kPeriod - kApart) return false;
  }
  return true;
}

// The longest run, or one a little shorter whose streams keep apart.
template <uint32_t kRows>
constexpr uint32_t RunOf(uint32_t longest, uint64_t row_bytes) {
  constexpr uint32_t kTries = 8;
  for (uint32_t less = 0; less < kTries && less <= longest / 16; ++less) {
    if (KeepApart<kRows>((longest - less) * row_bytes)) return longest - less;
  }
  return longest;
}

template <uint32_t kRows>
RowTiles TilesOf(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const uint32_t rows = row_end > row_begin ? row_end - row_begin : 0;
  if (rows < kRows) return {row_begin, row_end, 0, rows};
  const uint32_t run = RunOf<kRows>(rows / kRows, args.row_bytes), rest = rows - kRows * run;
  return {row_begin, row_end, run, run + (rest + kRows - 1) / kRows};
}

template <uint32_t kRows>
RowTile TileAt(const MatmulArgs& args, const RowTiles& tiles, uint32_t i) {
  uint32_t row = tiles.begin + i, row_stride = tiles.run;
  if (tiles.run > 0 && i >= tiles.run) {
    row = tiles.begin + kRows * i;
    if (row > tiles.end - kRows) row = tiles.end - kRows;
    row_stride = 1;
  }
  return {args.weights + row * args.row_bytes, row_stride * args.row_bytes, row, row_stride};
}

// One token's sums of a tile.
template <uint32_t kRows>
void StoreSums(const MatmulArgs& args, uint64_t token, const RowTile& rows, const float* sums) {
  float* out = args.out + token * args.out_stride;
  for (uint32_t i = 0; i < kRows; ++i) {
    const uint32_t r = rows.row + i * rows.row_stride;
    out[r] = args.bias ? sums[i] + args.bias[r] : sums[i];
  }
}

using FewTokensOfTile = void (*)(const MatmulArgs&, const RowTile&);
using TokensOfTile = void (*)(const MatmulArgs&, uint32_t token, uint32_t tokens, const RowTile&);

// Walks a range of rows with runs of up to kTileTokens tokens.
template <uint32_t kRows>
void WalkTiles(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end, TokensOfTile many) {
  const RowTiles tiles = TilesOf<kRows>(args, row_begin, row_end);
  for (uint32_t t = 0; t < args.x.rows; t += kTileTokens) {
    const uint32_t tokens = args.x.rows - t < kTileTokens ? args.x.rows - t : kTileTokens;
    for (uint32_t i = 0; i < tiles.count; ++i) {
      many(args, t, tokens, TileAt<kRows>(args, tiles, i));
    }
  }
}

// The same, but up to kFew tokens in tiles of kFewRows rows with few[tokens - 1].
template <uint32_t kFewRows, uint32_t kRows, uint32_t kFew>
void WalkTiles(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end,
               const FewTokensOfTile (&few)[kFew], TokensOfTile many) {
  const uint32_t all = args.x.rows;
  if (all == 0) return;
  if (all > kFew) return WalkTiles<kRows>(args, row_begin, row_end, many);
  const RowTiles tiles = TilesOf<kFewRows>(args, row_begin, row_end);
  for (uint32_t i = 0; i < tiles.count; ++i) few[all - 1](args, TileAt<kFewRows>(args, tiles, i));
}

// A number that is a constant expression.
template <int kValue>
struct Count {
  static constexpr int value = kValue;
};

// Calls f(Count<n>, t) for runs of n tokens from token t on: n is kMost, then 4, 2, 1.
template <int kMost, class F>
inline void RunTokens(uint32_t tokens, const F& f) {
  uint32_t t = 0;
  for (; t + kMost <= tokens; t += kMost) f(Count<kMost>{}, t);
  if constexpr (kMost > 4) {
    for (; t + 4 <= tokens; t += 4) f(Count<4>{}, t);
  }
  for (; t + 2 <= tokens; t += 2) f(Count<2>{}, t);
  if (t < tokens) f(Count<1>{}, t);
}

// The activations of one block of one token; further tokens are apart by the strides.
struct BlockTokens {
  const int8_t* q;
  const float* scale;
  const int16_t* sums;
  uint64_t q_stride, scale_stride, sums_stride;

  BlockTokens(const ActRows& a, uint32_t token, uint32_t block, uint32_t elems, uint32_t sums_each)
      : q(a.q + token * a.q_stride + uint64_t{block} * elems),
        scale(a.scale + token * a.scale_stride + block),
        sums(a.sums + token * a.sums_stride + uint64_t{block} * sums_each),
        q_stride(a.q_stride),
        scale_stride(a.scale_stride),
        sums_stride(a.sums_stride) {}

  // From a later token on.
  BlockTokens From(uint32_t tokens) const {
    BlockTokens later = *this;
    later.q += tokens * q_stride;
    later.scale += tokens * scale_stride;
    later.sums += tokens * sums_stride;
    return later;
  }
};

}  // namespace
}  // namespace sluice
