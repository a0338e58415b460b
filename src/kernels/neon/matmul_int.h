// The int8 matrix product of one instruction set: chooses type and token count.
//
// Contract: included by one translation unit per instruction set; `Isa` as products.h and panel.h
// say. All in an unnamed namespace.
#pragma once

#include "kernels/neon/panel.h"

#ifdef SLUICE_CODEBOOKS
#include "kernels/neon/codebook_types.h"
#endif

namespace sluice {
namespace {

template <class T, class Isa>
constexpr TokensOfTile ManyTokens() {
  if constexpr (Isa::kPanel) {
    return PanelTile<T, Isa>;
  } else {
    return StoredTile<T, Isa>;
  }
}

template <class T, class Isa>
void TypeRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  static_assert(Isa::kFewTokens <= 2);
  if constexpr (Isa::kFewTokens == 1) {
    constexpr FewTokensOfTile kFew[] = {FewTokens<T, Isa, 1>};
    WalkTiles<kTileRows, kTileRows>(args, row_begin, row_end, kFew, ManyTokens<T, Isa>());
  } else {
    constexpr FewTokensOfTile kFew[] = {FewTokens<T, Isa, 1>, FewTokens<T, Isa, 2>};
    WalkTiles<kTileRows, kTileRows>(args, row_begin, row_end, kFew, ManyTokens<T, Isa>());
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
    case WeightType::kTQ1_0:
      return TypeRows<TypeTQ1_0, Isa>(args, row_begin, row_end);
    default:
      return TypeRows<TypeTQ2_0, Isa>(args, row_begin, row_end);
  }
}

// The codebook types; false for another type.
template <class Isa>
bool CodebookRows([[maybe_unused]] const MatmulArgs& args, [[maybe_unused]] uint32_t row_begin,
                  [[maybe_unused]] uint32_t row_end) {
#ifdef SLUICE_CODEBOOKS
  const auto rows = [&](auto type) {
    TypeRows<decltype(type), Isa>(args, row_begin, row_end);
    return true;
  };
  switch (args.type) {
    case WeightType::kIQ1_S:
      return rows(TypeIQ1_S{});
    case WeightType::kIQ1_M:
      return rows(TypeIQ1_M{});
    case WeightType::kIQ2_XXS:
      return rows(TypeIQ2_XXS{});
    case WeightType::kIQ2_XS:
      return rows(TypeIQ2_XS{});
    case WeightType::kIQ2_S:
      return rows(TypeIQ2_S{});
    case WeightType::kIQ3_XXS:
      return rows(TypeIQ3_XXS{});
    case WeightType::kIQ3_S:
      return rows(TypeIQ3_S{});
    default:
      return false;
  }
#else
  return false;
#endif
}

template <class Isa>
void MatmulInt(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kQ8x32) return LegacyRows<Isa>(args, row_begin, row_end);
  if (!CodebookRows<Isa>(args, row_begin, row_end)) SuperRows<Isa>(args, row_begin, row_end);
}

}  // namespace
}  // namespace sluice
