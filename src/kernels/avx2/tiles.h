// Row tiles of the AVX2 matrix products (simd/tiles.h): eight rows, one per 32-bit lane.
//
// Contract: as there. Unnamed namespace: see simd.h.
#pragma once

#include "kernels/avx2/simd.h"
#include "kernels/simd/tiles.h"

namespace sluice {
namespace {

constexpr uint32_t kTileRows = 8;

inline void StoreTile(const MatmulArgs& args, uint64_t token, const RowTile& rows, __m256 sum) {
  alignas(32) float lanes[kTileRows];
  _mm256_store_ps(lanes, sum);
  StoreSums<kTileRows>(args, token, rows, lanes);
}

// Sums of the eight lanes of eight vectors.
inline __m256i SumLanes32(const __m256i* v) {
  const __m256i a = FoldPairs32(Fold32(v[0], v[1]), Fold32(v[2], v[3]));
  const __m256i b = FoldPairs32(Fold32(v[4], v[5]), Fold32(v[6], v[7]));
  return FoldLanes32(a, b);
}

// Sums of the sixteen lanes of eight vectors; half of a vector must fit int16.
inline __m256i SumLanes16(const __m256i* v) {
  const __m256i a = FoldPairs16(Fold16(v[0], v[1]), Fold16(v[2], v[3]));
  const __m256i b = FoldPairs16(Fold16(v[4], v[5]), Fold16(v[6], v[7]));
  const __m256i halves = FoldQuads16(a, b);
  return _mm256_add_epi32(_mm256_cvtepi16_epi32(LowLane(halves)),
                          _mm256_cvtepi16_epi32(HighLane(halves)));
}

// Products of 32 weight quants with 32 activations, summed in pairs. An int8 quant times an
// activation in -127..127 is computed as |w| * (x with the sign of w), which cannot saturate: 2 *
// 128 * 127 < 2^15.
template <bool kSigned>
inline __m256i PairProducts(__m256i w, __m256i x) {
  if constexpr (kSigned) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  } else {
    return _mm256_maddubs_epi16(w, x);
  }
}

}  // namespace
}  // namespace sluice
