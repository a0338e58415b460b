// The int8 matrix product of one instruction set: chooses type and token count.
//
// Contract: included by one translation unit per instruction set; `Isa` as products.h and panel.h
// say. All in an unnamed namespace.
#pragma once

#include "kernels/neon/panel.h"

namespace sluice {
namespace {

template <class T, class Isa>
void FewRows(const MatmulArgs& args, const RowTile& rows) {
  if (args.x.rows == 1) return FewTokens<T, Isa, 1>(args, rows);
  if constexpr (Isa::kFewTokens == 2) {
    if (args.x.rows == 2) return FewTokens<T, Isa, 2>(args, rows);
  }
}

template <class T, class Isa>
void TypeRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const RowTiles tiles = TilesOf(row_begin, row_end);
  if (args.x.rows <= Isa::kFewTokens) {
    for (uint32_t i = 0; i < tiles.count; ++i) FewRows<T, Isa>(args, TileAt(args, tiles, i));
    return;
  }
  for (uint32_t t = 0; t < args.x.rows; t += kTileTokens) {
    const uint32_t tokens = args.x.rows - t < kTileTokens ? args.x.rows - t : kTileTokens;
    for (uint32_t i = 0; i < tiles.count; ++i) {
      if constexpr (Isa::kPanel) {
        PanelTile<T, Isa>(args, t, tokens, TileAt(args, tiles, i));
      } else {
        StoredTile<T, Isa>(args, t, tokens, TileAt(args, tiles, i));
      }
    }
  }
}

template <class Isa>
void SlowRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const RowTiles tiles = TilesOf(row_begin, row_end);
  for (uint32_t t = 0; t < args.x.rows; t += kTileTokens) {
    const uint32_t tokens = args.x.rows - t < kTileTokens ? args.x.rows - t : kTileTokens;
    for (uint32_t i = 0; i < tiles.count; ++i) {
      SlowTile<Isa>(args, t, tokens, TileAt(args, tiles, i));
    }
  }
}

template <class Isa>
void LegacyRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ4_0:
      return TypeRows<TypeQ4_0, Isa>(args, row_begin, row_end);
    case WeightType::kQ4_1:
      return TypeRows<TypeQ4_1, Isa>(args, row_begin, row_end);
    case WeightType::kQ5_0:
      return TypeRows<TypeQ5_0, Isa>(args, row_begin, row_end);
    case WeightType::kQ5_1:
      return TypeRows<TypeQ5_1, Isa>(args, row_begin, row_end);
    case WeightType::kQ8_0:
      return TypeRows<TypeQ8_0, Isa>(args, row_begin, row_end);
    case WeightType::kIQ4_NL:
      return TypeRows<TypeIQ4_NL, Isa>(args, row_begin, row_end);
    default:
      return TypeRows<TypeMXFP4, Isa>(args, row_begin, row_end);
  }
}

template <class Isa>
void SuperRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ2_K:
      return TypeRows<TypeQ2_K, Isa>(args, row_begin, row_end);
    case WeightType::kQ3_K:
      return TypeRows<TypeQ3_K, Isa>(args, row_begin, row_end);
    case WeightType::kQ4_K:
      return TypeRows<TypeQ4_K, Isa>(args, row_begin, row_end);
    case WeightType::kQ5_K:
      return TypeRows<TypeQ5_K, Isa>(args, row_begin, row_end);
    case WeightType::kQ6_K:
      return TypeRows<TypeQ6_K, Isa>(args, row_begin, row_end);
    case WeightType::kIQ4_XS:
      return TypeRows<TypeIQ4_XS, Isa>(args, row_begin, row_end);
    case WeightType::kTQ2_0:
      return TypeRows<TypeTQ2_0, Isa>(args, row_begin, row_end);
    default:  // TQ1_0 and the codebook types
      return SlowRows<Isa>(args, row_begin, row_end);
  }
}

template <class Isa>
void MatmulInt(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kQ8x32) return LegacyRows<Isa>(args, row_begin, row_end);
  SuperRows<Isa>(args, row_begin, row_end);
}

}  // namespace
}  // namespace sluice
