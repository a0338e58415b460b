#include "kernels/peak.h"

#include "kernels/amx/tiles.h"

namespace sluice::amx {
namespace {

// Four sums, two tiles of activations, two of weights: all full.
constexpr TileConfig kConfig = {.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  alignas(64) int8_t bytes[16][64] = {};
  alignas(64) int32_t sums[16][16];
  Configure(kConfig);
  FinishStores(bytes);
  _tile_loadd(4, bytes, 64);
  _tile_loadd(5, bytes, 64);
  _tile_loadd(6, bytes, 64);
  _tile_loadd(7, bytes, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  asm volatile("" : : "r"(sums) : "memory");
  return uint64_t{2} * 16 * 16 * 64 * 4 * rounds;
}

}  // namespace sluice::amx
