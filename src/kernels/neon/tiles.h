// Row tiles of the aarch64 matrix products (simd/tiles.h): four rows, one per 32-bit lane.
//
// Contract: as there. Unnamed namespace: see simd.h.
#pragma once

#include "kernels/neon/simd.h"
#include "kernels/simd/tiles.h"

namespace sluice {
namespace {

constexpr uint32_t kTileRows = 4;

inline void StoreTile(const MatmulArgs& args, uint64_t token, const RowTile& rows,
                      float32x4_t sum) {
  float lanes[kTileRows];
  vst1q_f32(lanes, sum);
  StoreSums<kTileRows>(args, token, rows, lanes);
}

}  // namespace
}  // namespace sluice
