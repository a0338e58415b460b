// The AMX tile unit in software: what Intel's manual says of the instructions the kernels use.
//
// Contract: test code only; one tile file per thread. What the processor would refuse (a bad
// palette, a tile that is not configured, shapes that do not fit together) ends the test with a
// message.
#pragma once

#include <cstdint>

namespace sluice::testing {

void AmxLoadConfig(const void* config);
void AmxRelease();
void AmxZero(int tile);
void AmxLoad(int tile, const void* base, int64_t stride);
void AmxStore(int tile, void* base, int64_t stride);
// tile += a x b over quads of bytes, each operand signed or not.
void AmxDot(int tile, int a, int b, bool a_signed, bool b_signed);
// For tests: whether the calling thread holds a configuration.
bool AmxIsConfigured();
// Tile products this thread has made so far.
uint64_t AmxDots();

}  // namespace sluice::testing

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#define _tile_loadconfig(config) ::sluice::testing::AmxLoadConfig(config)
#define _tile_release() ::sluice::testing::AmxRelease()
#define _tile_zero(tile) ::sluice::testing::AmxZero(tile)
#define _tile_loadd(tile, base, stride) ::sluice::testing::AmxLoad(tile, base, stride)
#define _tile_stored(tile, base, stride) ::sluice::testing::AmxStore(tile, base, stride)
#define _tile_dpbssd(tile, a, b) ::sluice::testing::AmxDot(tile, a, b, true, true)
#define _tile_dpbsud(tile, a, b) ::sluice::testing::AmxDot(tile, a, b, true, false)
#define _tile_dpbusd(tile, a, b) ::sluice::testing::AmxDot(tile, a, b, false, true)
#define _tile_dpbuud(tile, a, b) ::sluice::testing::AmxDot(tile, a, b, false, false)
