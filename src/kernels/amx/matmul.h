// The AMX matrix products of quantised weights with int8 activations, for sixteen tokens and more.
//
// Contract: as ops.h, with the bits of every other set; what does not fill a tile of sixteen tokens
// and sixteen rows goes to AVX-512. The calling thread must be allowed to use tiles
// (base/cpu.h, RequestAmxTiles); it holds none before and none after.
#pragma once

#include "kernels/ops.h"

namespace sluice::amx {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::amx
