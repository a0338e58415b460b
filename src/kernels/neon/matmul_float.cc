// Float activations: four rows at a time. F32, F16 and BF16 rows are read as they lie, other types
// decoded 256 elements at a time.
//
// Order of the sum: element k is fused into lane k % 8, k ascending; the lanes are folded as in
// scalar/lanes.h; a tail is padded with zeros.
#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/neon/tiles.h"

namespace sluice::neon {
namespace {

constexpr uint32_t kChunk = 256;  // a multiple of every block size

// n (a multiple of 8) elements of four rows times kTokens tokens.
template <class Row, int kTokens>
inline void Block(const uint8_t* w, uint64_t stride, const float* x, uint64_t x_stride, uint32_t n,
                  F8 (*acc)[kTileRows]) {
  F8 sum[kTokens][kTileRows];
  for (int t = 0; t < kTokens; ++t) {
    for (uint32_t r = 0; r < kTileRows; ++r) sum[t][r] = acc[t][r];
  }
  for (uint32_t i = 0; i < n; i += 8) {
    F8 row[kTileRows];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kTileRows; ++r) row[r] = Row::At(w + r * stride, i);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const F8 v = LoadF8(x + uint64_t(t) * x_stride + i);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kTileRows; ++r) sum[t][r] = Fuse(sum[t][r], row[r], v);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (uint32_t r = 0; r < kTileRows; ++r) acc[t][r] = sum[t][r];
  }
}

template <class Row>
void Tokens(const uint8_t* w, uint64_t stride, const float* x, uint64_t x_stride, uint32_t tokens,
            uint32_t n, F8 (*acc)[kTileRows]) {
  uint32_t t = 0;
  for (; t + 2 <= tokens; t += 2) {
    Block<Row, 2>(w, stride, x + t * x_stride, x_stride, n, acc + t);
  }
  if (t < tokens) Block<Row, 1>(w, stride, x + t * x_stride, x_stride, n, acc + t);
}

// The last elements of a row that fill no eight, padded with zeros. `w` points at them.
void Tail(WeightType type, const uint8_t* w, uint64_t stride, const float* x, uint64_t x_stride,
          uint32_t tokens, uint32_t n, F8 (*acc)[kTileRows]) {
  float rows[kTileRows][8] = {};
  for (uint32_t r = 0; r < kTileRows; ++r) DecodeRow(type, w + r * stride, rows[r], n);
  for (uint32_t t = 0; t < tokens; ++t) {
    float v[8] = {};
    for (uint32_t i = 0; i < n; ++i) v[i] = x[t * x_stride + i];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      acc[t][r] = Fuse(acc[t][r], LoadF8(rows[r]), LoadF8(v));
    }
  }
}

struct TileArgs {
  const MatmulArgs& args;
  RowTile rows;
  uint32_t token, tokens;
  const float* x(uint32_t column) const { return args.x.f32 + token * args.x.f32_stride + column; }
};

template <class Row, uint32_t kBytes>
void PlainTile(const TileArgs& tile, F8 (*acc)[kTileRows]) {
  const ActRows& a = tile.args.x;
  const uint32_t whole = a.cols / 8 * 8;
  for (uint32_t c = 0; c < whole; c += kChunk) {
    const uint32_t n = whole - c < kChunk ? whole - c : kChunk;
    Tokens<Row>(tile.rows.base + uint64_t{c} * kBytes, tile.rows.stride, tile.x(c), a.f32_stride,
                tile.tokens, n, acc);
  }
  if (whole == a.cols) return;
  Tail(tile.args.type, tile.rows.base + uint64_t{whole} * kBytes, tile.rows.stride, tile.x(whole),
       a.f32_stride, tile.tokens, a.cols - whole, acc);
}

void DecodedTile(const TileArgs& tile, F8 (*acc)[kTileRows]) {
  const WeightTypeInfo& info = InfoOf(tile.args.type);
  const ActRows& a = tile.args.x;
  float rows[kTileRows][kChunk];
  for (uint32_t c = 0; c < a.cols; c += kChunk) {
    const uint32_t n = a.cols - c < kChunk ? a.cols - c : kChunk;
    const uint8_t* w = tile.rows.base + uint64_t{c} / info.block_elems * info.block_bytes;
    for (uint32_t r = 0; r < kTileRows; ++r) {
      DecodeRow(tile.args.type, w + r * tile.rows.stride, rows[r], n);
    }
    Tokens<RowF32>(reinterpret_cast<const uint8_t*>(rows), sizeof(rows[0]), tile.x(c), a.f32_stride,
                   tile.tokens, n, acc);
  }
}

void OneTile(const TileArgs& tile) {
  F8 acc[kTileTokens][kTileRows];
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    for (F8& sum : acc[t]) sum = Zero8();
  }
  switch (tile.args.type) {
    case WeightType::kF32:
      PlainTile<RowF32, 4>(tile, acc);
      break;
    case WeightType::kF16:
      PlainTile<RowF16, 2>(tile, acc);
      break;
    case WeightType::kBF16:
      PlainTile<RowBF16, 2>(tile, acc);
      break;
    default:
      DecodedTile(tile, acc);
  }
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    const float sums[kTileRows] = {Fold(acc[t][0]), Fold(acc[t][1]), Fold(acc[t][2]),
                                   Fold(acc[t][3])};
    StoreTile(tile.args, tile.token + t, tile.rows, vld1q_f32(sums));
  }
}

}  // namespace

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const RowTiles tiles = TilesOf(row_begin, row_end);
  for (uint32_t t = 0; t < args.x.rows; t += kTileTokens) {
    const uint32_t tokens = args.x.rows - t < kTileTokens ? args.x.rows - t : kTileTokens;
    for (uint32_t i = 0; i < tiles.count; ++i) OneTile({args, TileAt(args, tiles, i), t, tokens});
  }
}

}  // namespace sluice::neon
