// K-quants on tiles. Scale times quant fits 13 bits, so a panel holds those products as bytes, low
// and high, and two integers per token and row, summed over the whole block, are all that leaves
// the tiles: isum = low + 256 * high, exact. The weighted sums of the mins come from two more tile
// products of the activation sums, read as bytes.
#include "kernels/amx/matmul.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avxvnni/k_product.h"

namespace sluice::amx {
namespace {

// Products that fit int8: 15 * 3 in Q2_K, -1..1 in TQ.
template <class T>
constexpr bool kOneByte = T::kTernary;
template <>
constexpr bool kOneByte<VnniQ2_K> = true;

// Tile registers, by number because GCC pastes them into the assembler's text: 0 low and 1 high
// sums of a group of tokens, 2 and 3 those of a second one, so that four chains of products hide
// each other's latency; 4 activations, 5 weights, 6 activation sums, 7 mins.
constexpr TileConfig kConfig = {.row_bytes = {64, 64, 64, 64, 64, 64, 32, 64},
                                .rows = {16, 16, 16, 16, 16, 16, 16, 8}};

struct alignas(64) ScaledPanel {
  int32_t low[64][16];  // unsigned bytes, or signed if they are all (kOneByte)
  int32_t high[64][16];
  int32_t mins[8][16], mins_high[8][16];  // a min in the even bytes of each pair, in the odd ones
};

template <class T>
void ScalePanel(const KPanel<Zmm>& panel, ScaledPanel* out) {
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(T::kOffset));
  const __m512i even = _mm512_set1_epi32(0x00ff00ff), odd = _mm512_set1_epi32(int(0xff00ff00));
  for (int step = 0; step < 64; ++step) {
    __m512i w = Zmm::Load(panel.quants[step]);
    if constexpr (T::kOffset != 0) w = _mm512_sub_epi8(w, zero);
    if constexpr (T::kTernary) {
      _mm512_storeu_si512(out->low[step], w);
    } else {
      const __m512i s = Zmm::Load(panel.scales[step / kGroupSteps<T>]);
      const __m512i twice =
          _mm512_or_si512(_mm512_and_si512(s, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(s, 16));
      const __m512i a = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), twice);
      const __m512i b = _mm512_mullo_epi16(_mm512_srai_epi16(w, 8), twice);
      const __m512i low = _mm512_or_si512(_mm512_and_si512(a, even), _mm512_slli_epi16(b, 8));
      _mm512_storeu_si512(out->low[step], low);
      if constexpr (!kOneByte<T>) {
        const __m512i high = _mm512_or_si512(_mm512_srli_epi16(a, 8), _mm512_and_si512(b, odd));
        _mm512_storeu_si512(out->high[step], high);
      }
    }
  }
  for (int i = 0; T::kMin && i < 8; ++i) {
    const __m512i mins = Zmm::Load(panel.mins[i]);
    _mm512_storeu_si512(out->mins[i], mins);
    _mm512_storeu_si512(out->mins_high[i], _mm512_slli_epi32(mins, 8));
  }
}

// Integers of one group of tokens, [token][row].
struct alignas(64) GroupSums {
  int32_t low[16][16], high[16][16], min_low[16][16], min_high[16][16];
};

template <int kGroups>
inline void ClearSums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kGroups == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

// The sums over a block for one group of tokens or two; both read each tile of weights.
template <class T, int kGroups>
void QuantSums(const ScaledPanel& panel, const BlockTokens* x, GroupSums* out) {
  const auto stride = static_cast<int64_t>(x[0].q_stride);
  ClearSums<kGroups>();
  for (int i = 0; i < 4; ++i) {
    const int8_t* first = x[0].q + 64 * i;
    _tile_loadd(5, panel.low[16 * i], 64);
    _tile_loadd(4, first, stride);
    if constexpr (kOneByte<T>) {
      _tile_dpbssd(0, 4, 5);
    } else {
      _tile_dpbsud(0, 4, 5);
    }
    if constexpr (kGroups == 2) {
      _tile_loadd(4, x[1].q + 64 * i, stride);
      if constexpr (kOneByte<T>) {
        _tile_dpbssd(2, 4, 5);
      } else {
        _tile_dpbsud(2, 4, 5);
      }
    }
    if constexpr (kOneByte<T>) continue;
    _tile_loadd(5, panel.high[16 * i], 64);
    if constexpr (kGroups == 2) {
      _tile_dpbssd(3, 4, 5);
      _tile_loadd(4, first, stride);
    }
    _tile_dpbssd(1, 4, 5);
  }
  _tile_stored(0, out[0].low, 64);
  if constexpr (!kOneByte<T>) _tile_stored(1, out[0].high, 64);
  if constexpr (kGroups == 2) {
    _tile_stored(2, out[1].low, 64);
    if constexpr (!kOneByte<T>) _tile_stored(3, out[1].high, 64);
  }
}

template <int kGroups>
void MinSums(const ScaledPanel& panel, const BlockTokens* x, GroupSums* out) {
  const auto stride = static_cast<int64_t>(x[0].sums_stride * sizeof(int16_t));
  ClearSums<kGroups>();
  _tile_loadd(7, panel.mins, 64);
  _tile_loadd(6, x[0].sums, stride);
  _tile_dpbuud(0, 6, 7);
  if constexpr (kGroups == 2) {
    _tile_loadd(6, x[1].sums, stride);
    _tile_dpbuud(2, 6, 7);
  }
  _tile_loadd(7, panel.mins_high, 64);
  if constexpr (kGroups == 2) {
    _tile_dpbsud(3, 6, 7);
    _tile_loadd(6, x[0].sums, stride);
  }
  _tile_dpbsud(1, 6, 7);
  _tile_stored(0, out[0].min_low, 64);
  _tile_stored(1, out[0].min_high, 64);
  if constexpr (kGroups == 2) {
    _tile_stored(2, out[1].min_low, 64);
    _tile_stored(3, out[1].min_high, 64);
  }
}

inline __m512i JoinBytes(const int32_t* low, const int32_t* high) {
  return Zmm::Add(Zmm::Load(low), _mm512_slli_epi32(Zmm::Load(high), 8));
}

template <class T>
void ChainGroup(const GroupSums& sums, const KPanel<Zmm>& panel, const BlockTokens& x,
                __m512* chain) {
  const __m512 d = Zmm::LoadFloats(panel.d);
  const __m512 m = T::kMin ? Zmm::LoadFloats(panel.m) : Zmm::FloatZero();
  for (uint32_t i = 0; i < kGroupTokens; ++i) {
    const __m512i isum =
        kOneByte<T> ? Zmm::Load(sums.low[i]) : JoinBytes(sums.low[i], sums.high[i]);
    const __m512i imin = T::kMin ? JoinBytes(sums.min_low[i], sums.min_high[i]) : Zmm::Zero();
    chain[i] = KChain<Zmm, T>(chain[i], x.scale[i * x.scale_stride], d, isum, m, imin);
  }
}

template <class T, int kGroups>
void BlockTile(const KPanel<Zmm>& panel, const ScaledPanel& scaled, const BlockTokens* x,
               GroupSums* sums, __m512 (*chains)[kGroupTokens]) {
  QuantSums<T, kGroups>(scaled, x, sums);
  if constexpr (T::kMin) MinSums<kGroups>(scaled, x, sums);
  for (int g = 0; g < kGroups; ++g) ChainGroup<T>(sums[g], panel, x[g], chains[g]);
}

template <class T>
void GroupTile(const MatmulArgs& args, uint32_t first, uint32_t groups, const RowTile& rows) {
  Chains chains;
  chains.Clear(groups);
  KPanel<Zmm> panel;
  ScaledPanel scaled;
  GroupSums sums[2];
  for (uint32_t b = 0; b < args.x.cols / 256; ++b) {
    ReadKPanel<Zmm, T>(rows, uint64_t{b} * T::kBytes, &panel);
    ScalePanel<T>(panel, &scaled);
    FinishStores(&scaled);
    const auto tokens = [&](uint32_t g) {
      return BlockTokens(args.x, GroupStart(args.x.rows, first + g), b, 256, 16);
    };
    uint32_t g = 0;
    for (; g + 2 <= groups; g += 2) {
      const BlockTokens x[2] = {tokens(g), tokens(g + 1)};
      BlockTile<T, 2>(panel, scaled, x, sums, chains.sum + g);
    }
    if (g < groups) {
      const BlockTokens x = tokens(g);
      BlockTile<T, 1>(panel, scaled, &x, sums, chains.sum + g);
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

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (!FillsTiles(args, row_begin, row_end)) return avx512::MatmulK(args, row_begin, row_end);
  WithKType(args.type, [&](auto type) { TileRows<decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::amx
