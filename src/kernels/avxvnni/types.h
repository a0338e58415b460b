// The weight types as the byte dot product wants them: unsigned quants and an offset.
//
// Contract: as avx2/k_types.h and avx2/legacy_types.h, and kSigned is false throughout. The dot
// product widens to 32 bits at once, so int8 quants are computed as (q + 128) and the offset comes
// off with the sums of the activations: exact, without the sign trick that maddubs needs.
#pragma once

#include "kernels/avx2/k_types.h"
#include "kernels/avx2/legacy_types.h"

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

}  // namespace
}  // namespace sluice
