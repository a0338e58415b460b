// 32-element weight types on tiles: one tile product per block, because each block has a float
// scale. Tiles multiply signed bytes, so quants are stored signed and no offset comes off later.
#include "kernels/amx/matmul.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avxvnni/legacy_product.h"

namespace sluice::amx {
namespace {

// Tile registers; two of each kind, so that a block's sums are stored while the next multiply.
constexpr TileConfig kConfig = {.row_bytes = {64, 64, 32, 32, 64, 64},
                                .rows = {16, 16, 16, 16, 8, 8}};

// A type whose panel was made signed.
template <class T>
struct Signed : T {
  static constexpr int kOffset = 0;
};

template <class T>
void MakeSigned(uint32_t blocks, LegacyPanel<Zmm>* panel) {
  if constexpr (T::kOffset != 0) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(T::kOffset));
    for (uint32_t b = 0; b < blocks; ++b) {
      for (int i = 0; i < 8; ++i) {
        int32_t* quants = panel->quants[b][i];
        _mm512_storeu_si512(quants, _mm512_sub_epi8(Zmm::Load(quants), offset));
      }
    }
  }
}

// Integers of two blocks and one group of tokens, [block][token][row].
struct alignas(64) PairSums {
  int32_t sums[2][16][16];
};

// Blocks b and, unless `single`, b + 1.
inline void TileSums(const LegacyPanel<Zmm>& panel, uint32_t b, bool single, const BlockTokens& x,
                     PairSums* out) {
  const auto stride = static_cast<int64_t>(x.q_stride);
  _tile_zero(0);
  _tile_loadd(2, x.q + 32 * b, stride);
  _tile_loadd(4, panel.quants[b], 64);
  _tile_dpbssd(0, 2, 4);
  if (!single) {
    _tile_zero(1);
    _tile_loadd(3, x.q + 32 * b + 32, stride);
    _tile_loadd(5, panel.quants[b + 1], 64);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(1, out->sums[1], 64);
  }
  _tile_stored(0, out->sums[0], 64);
}

template <class T>
void ChainBlock(const int32_t (*sums)[16], const LegacyPanel<Zmm>& panel, uint32_t b,
                const BlockTokens& x, __m512* chain) {
  const __m512 d = Zmm::LoadFloats(panel.d[b]);
  const __m512 m = T::kMin ? Zmm::LoadFloats(panel.m[b]) : Zmm::FloatZero();
  for (uint32_t i = 0; i < kGroupTokens; ++i) {
    chain[i] = LegacyChain<Zmm, Signed<T>>(chain[i], x.scale[i * x.scale_stride + b],
                                           x.sums[i * x.sums_stride + b], d, Zmm::Load(sums[i]), m);
  }
}

template <class T>
void GroupTile(const MatmulArgs& args, uint32_t first, uint32_t groups, const RowTile& rows) {
  const uint32_t all_blocks = args.x.cols / 32;
  Chains chains;
  chains.Clear(groups);
  LegacyPanel<Zmm> panel;
  PairSums pair;
  for (uint32_t start = 0; start < all_blocks; start += kPanelBlocks) {
    const uint32_t rest = all_blocks - start, blocks = rest < kPanelBlocks ? rest : kPanelBlocks;
    ReadLegacyPanel<Zmm, T>(rows, uint64_t{start} * T::kBytes, blocks, &panel);
    MakeSigned<T>(blocks, &panel);
    FinishStores(&panel);
    for (uint32_t g = 0; g < groups; ++g) {
      const BlockTokens x(args.x, GroupStart(args.x.rows, first + g), start, 32, 1);
      for (uint32_t b = 0; b < blocks; b += 2) {
        const bool single = b + 1 == blocks;
        TileSums(panel, b, single, x, &pair);
        ChainBlock<T>(pair.sums[0], panel, b, x, chains.sum[g]);
        if (!single) ChainBlock<T>(pair.sums[1], panel, b + 1, x, chains.sum[g]);
      }
    }
  }
  StoreGroups(args, first, groups, rows, chains);
}

template <class T>
void TileRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  Configure(kConfig);
  ForTiles(args, row_begin, row_end, [&](uint32_t first, uint32_t groups, const RowTile& rows) {
    GroupTile<T>(args, first, groups, rows);
  });
  _tile_release();  // so that the kernel need not save eight kilobytes per switch
}

}  // namespace

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (!FillsTiles(args, row_begin, row_end)) return avx512::MatmulLegacy(args, row_begin, row_end);
  WithLegacyType(args.type, [&](auto type) { TileRows<decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::amx
