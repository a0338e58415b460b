#include <cmath>
#include <limits>

#include "kernels/scalar/kv.h"
#include "kernels/scalar/lanes.h"
#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

// Heads handled together; they share each decoded piece of a K or V row.
constexpr uint32_t kHeads = 16;
constexpr uint32_t kPiece = 32;

struct HeadTile {
  uint32_t first, count;  // query heads
  float max[kHeads], sum[kHeads];
  float p[kHeads][kKvPageTokens];
};

const uint8_t* RowAt(const AttentionArgs& args, uint32_t position, uint64_t offset,
                     uint64_t row_bytes) {
  return args.pages[position / kKvPageTokens] + offset + position % kKvPageTokens * row_bytes;
}

uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }

void Scores(const AttentionArgs& args, uint32_t begin, uint32_t end, HeadTile* tile) {
  float piece[kPiece];
  for (uint32_t pos = begin; pos < end; ++pos) {
    const uint8_t* row = RowAt(args, pos, args.k_offset, args.k_row);
    float lanes[kHeads][8] = {};
    for (uint32_t i = 0; i < args.dim_k; i += kPiece) {
      const uint32_t n = Least(args.dim_k - i, kPiece);
      LoadKv(args.format, false, row, i, n, piece);
      for (uint32_t h = 0; h < tile->count; ++h) {
        DotLanes(args.q + uint64_t{tile->first + h} * args.dim_k + i, piece, n, lanes[h]);
      }
    }
    for (uint32_t h = 0; h < tile->count; ++h) {
      tile->p[h][pos - begin] = FoldLanes(lanes[h]) * args.scale;
    }
  }
}

// Turns a page's scores into weights and rescales what was summed before.
void Rescale(const AttentionArgs& args, uint32_t n, HeadTile* tile) {
  for (uint32_t h = 0; h < tile->count; ++h) {
    float max = tile->max[h];
    for (uint32_t j = 0; j < n; ++j) max = tile->p[h][j] > max ? tile->p[h][j] : max;
    const float keep = std::exp(tile->max[h] - max);
    float lanes[8] = {};
    for (uint32_t j = 0; j < n; ++j) {
      tile->p[h][j] = std::exp(tile->p[h][j] - max);
      lanes[j % 8] += tile->p[h][j];
    }
    tile->max[h] = max;
    tile->sum[h] = tile->sum[h] * keep + FoldLanes(lanes);
    float* out = args.out + uint64_t{tile->first + h} * args.dim_v;
    for (uint32_t i = 0; i < args.dim_v; ++i) out[i] *= keep;
  }
}

void AddValues(const AttentionArgs& args, uint32_t begin, uint32_t end, const HeadTile& tile) {
  float piece[kPiece];
  for (uint32_t pos = begin; pos < end; ++pos) {
    const uint8_t* row = RowAt(args, pos, args.v_offset, args.v_row);
    for (uint32_t i = 0; i < args.dim_v; i += kPiece) {
      const uint32_t n = Least(args.dim_v - i, kPiece);
      LoadKv(args.format, args.v_offset != args.k_offset, row, i, n, piece);
      for (uint32_t h = 0; h < tile.count; ++h) {
        float* out = args.out + uint64_t{tile.first + h} * args.dim_v + i;
        const float p = tile.p[h][pos - begin];
        for (uint32_t j = 0; j < n; ++j) out[j] += p * piece[j];
      }
    }
  }
}

void OneRow(const AttentionArgs& args) {
  for (uint32_t first = 0; first < args.group; first += kHeads) {
    HeadTile tile;
    tile.first = first;
    tile.count = Least(args.group - first, kHeads);
    for (uint32_t h = 0; h < tile.count; ++h) {
      // A sink is a logit without a value: the sum starts at exp(sink - max) = 1.
      tile.max[h] = args.sinks ? args.sinks[first + h] : -std::numeric_limits<float>::infinity();
      tile.sum[h] = args.sinks ? 1.0f : 0.0f;
    }
    float* out = args.out + uint64_t{first} * args.dim_v;
    for (uint64_t i = 0; i < uint64_t{tile.count} * args.dim_v; ++i) out[i] = 0;
    for (uint32_t pos = args.first; pos <= args.last;) {
      const uint32_t end = Least((pos / kKvPageTokens + 1) * kKvPageTokens, args.last + 1);
      Scores(args, pos, end, &tile);
      Rescale(args, end - pos, &tile);
      AddValues(args, pos, end, tile);
      pos = end;
    }
    for (uint32_t h = 0; h < tile.count; ++h) {
      const float inverse = 1.0f / tile.sum[h];
      for (uint32_t i = 0; i < args.dim_v; ++i) out[uint64_t{h} * args.dim_v + i] *= inverse;
    }
  }
}

}  // namespace

void Attention(const AttentionArgs& all) {
  AttentionArgs args = all;
  args.rows = 1;
  for (uint64_t row = 0; row < all.rows; ++row) {
    args.q = all.q + row * all.q_stride;
    args.out = all.out + row * all.out_stride;
    args.last = all.last + static_cast<uint32_t>(row);
    OneRow(args);
  }
}

}  // namespace sluice::scalar
