// Tile registers: their configuration and the groups of tokens that fill them.
//
// Contract: a product is C [16 tokens][16 rows] += A [16 tokens][bytes] x B [bytes / 4][16 rows],
// where A is a piece of the activations as they lie in memory and B a panel of weights whose 32-bit
// lanes hold four bytes of a row: the panels of avxvnni/ as they are. Unnamed namespace: see
// avx2/simd.h.
#pragma once

#include "kernels/avx2/tiles.h"
#include "kernels/avx512/vectors.h"
#include "kernels/avxvnni/k_product.h"

namespace sluice {
namespace {

constexpr uint32_t kGroupTokens = 16;
// Groups that share one taken-apart panel: their chains take 8 KiB.
constexpr uint32_t kTileGroups = 8;

// What ldtilecfg reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Orders the compiler's stores before the tile loads that follow: GCC 12's do not say that they
// read memory, and its _tile_loadconfig owns up to 8 bytes of 64.
inline void FinishStores(const void* to) { asm volatile("" : : "r"(to) : "memory"); }

inline void Configure(const TileConfig& config) {
  FinishStores(&config);
  _tile_loadconfig(&config);
}

// Tokens in groups of sixteen; the last one may overlap its neighbour (the same bits are written
// twice).
inline uint32_t GroupsOf(uint32_t tokens) { return (tokens + kGroupTokens - 1) / kGroupTokens; }
inline uint32_t GroupStart(uint32_t tokens, uint32_t group) {
  const uint32_t start = group * kGroupTokens;
  return start + kGroupTokens <= tokens ? start : tokens - kGroupTokens;
}

// Whether a product fills whole tiles.
inline bool FillsTiles(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  return args.x.rows >= kGroupTokens && row_begin + Zmm::kLanes <= row_end;
}

// Walks (run of groups, tile of rows) pairs: tile(first_group, groups, rows).
template <class Tile>
void ForTiles(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end, const Tile& tile) {
  const RowTiles tiles = TilesOf<Zmm::kLanes>(args, row_begin, row_end);
  const uint32_t all = GroupsOf(args.x.rows);
  for (uint32_t g = 0; g < all; g += kTileGroups) {
    const uint32_t groups = all - g < kTileGroups ? all - g : kTileGroups;
    for (uint32_t i = 0; i < tiles.count; ++i) tile(g, groups, TileAt<Zmm::kLanes>(args, tiles, i));
  }
}

// The chains of a run of groups.
struct Chains {
  __m512 sum[kTileGroups][kGroupTokens];

  void Clear(uint32_t groups) {
    for (uint32_t g = 0; g < groups; ++g) {
      for (uint32_t i = 0; i < kGroupTokens; ++i) sum[g][i] = Zmm::FloatZero();
    }
  }
};

inline void StoreGroups(const MatmulArgs& args, uint32_t first, uint32_t groups,
                        const RowTile& rows, const Chains& chains) {
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t token = GroupStart(args.x.rows, first + g);
    for (uint32_t i = 0; i < kGroupTokens; ++i) {
      StoreRows<Zmm>(args, token + i, rows, chains.sum[g][i]);
    }
  }
}

}  // namespace
}  // namespace sluice
