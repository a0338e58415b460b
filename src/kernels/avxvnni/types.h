// The weight types as the byte dot product wants them: unsigned quants and an offset.
//
// Contract: as avx2/k_types.h and avx2/legacy_types.h, and kSigned is false throughout; kAcc is 0
// where not even two products fit int16. With...Type(type, f) calls f with (an object of) the class
// of a type. The dot
// product widens to 32 bits at once, so int8 quants are computed as (q + 128) and the offset comes
// off with the sums of the activations: exact, without the sign trick that maddubs needs.
#pragma once

#include "kernels/avx2/k_types.h"
#include "kernels/avx2/legacy_types.h"
#include "quant/types.h"

#ifdef SLUICE_CODEBOOKS
#include "kernels/avx2/codebook_types.h"
#endif

namespace sluice {
namespace {

inline __m256i FlipSigns(__m256i v) {
  return _mm256_xor_si256(v, _mm256_set1_epi8(static_cast<char>(0x80)));
}

struct VnniQ8_0 : TypeQ8_0 {
  static constexpr int kOffset = 128;
  static constexpr bool kSigned = false;
  static __m256i Quants(const uint8_t* b) { return FlipSigns(TypeQ8_0::Quants(b)); }
};

struct VnniIQ4_NL : TypeIQ4_NL {
  static constexpr int kOffset = 128;
  static constexpr bool kSigned = false;
  static __m256i Quants(const uint8_t* b) {
    return _mm256_shuffle_epi8(FlipSigns(Iq4Table()), SpreadNibbles(b + 2));
  }
};

struct VnniIQ4_XS : TypeIQ4_XS {
  static constexpr int kAcc = 0, kOffset = 128;
  static constexpr bool kSigned = false, kShift = true;
  static Head ReadHead(const uint8_t* b) {
    const __m256i s = TypeIQ4_XS::ReadHead(b).s;  // eight scales in both lanes
    const __m128i v = LowLane(s);
    const __m256i twice = Join(_mm_unpacklo_epi16(v, v), _mm_unpackhi_epi16(v, v));
    return {s, _mm256_slli_epi16(twice, 7)};
  }
  static __m256i Quants(const uint8_t* b, int g) {
    return _mm256_shuffle_epi8(FlipSigns(Iq4Table()), SpreadNibbles(b + 8 + 16 * g));
  }
};

// Quants of at most 3 and 7: sixteen products fit int16 with room to spare.
struct VnniQ2_K : TypeQ2_K {
  static constexpr int kAcc = 8;
};
struct VnniQ3_K : TypeQ3_K {
  static constexpr int kAcc = 8;
};

template <class F>
inline void WithLegacyType(WeightType type, const F& f) {
  switch (type) {
    case WeightType::kQ4_0:
      return f(TypeQ4_0{});
    case WeightType::kQ4_1:
      return f(TypeQ4_1{});
    case WeightType::kQ5_0:
      return f(TypeQ5_0{});
    case WeightType::kQ5_1:
      return f(TypeQ5_1{});
    case WeightType::kQ8_0:
      return f(VnniQ8_0{});
    case WeightType::kIQ4_NL:
      return f(VnniIQ4_NL{});
    default:
      return f(TypeMXFP4{});
  }
}

template <class F>
inline void WithKType(WeightType type, const F& f) {
  switch (type) {
    case WeightType::kQ2_K:
      return f(VnniQ2_K{});
    case WeightType::kQ3_K:
      return f(VnniQ3_K{});
    case WeightType::kQ4_K:
      return f(TypeQ4_K{});
    case WeightType::kQ5_K:
      return f(TypeQ5_K{});
    case WeightType::kQ6_K:
      return f(TypeQ6_K{});
    case WeightType::kIQ4_XS:
      return f(VnniIQ4_XS{});
#ifdef SLUICE_CODEBOOKS
    case WeightType::kIQ1_S:
      return f(TypeIQ1_S{});
    case WeightType::kIQ1_M:
      return f(TypeIQ1_M{});
    case WeightType::kIQ2_XXS:
      return f(TypeIQ2_XXS{});
    case WeightType::kIQ2_XS:
      return f(TypeIQ2_XS{});
    case WeightType::kIQ2_S:
      return f(TypeIQ2_S{});
    case WeightType::kIQ3_XXS:
      return f(TypeIQ3_XXS{});
    case WeightType::kIQ3_S:
      return f(TypeIQ3_S{});
#endif
    case WeightType::kTQ1_0:
      return f(TypeTQ1_0{});
    default:
      return f(TypeTQ2_0{});
  }
}

}  // namespace
}  // namespace sluice
