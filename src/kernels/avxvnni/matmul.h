// The AVX-VNNI matrix products of quantised weights with int8 activations.
//
// Contract: as ops.h, with the bits of every other set; each handles rows [row_begin, row_end) and
// hands types it has no own form of to AVX2.
#pragma once

#include "kernels/ops.h"

namespace sluice::avxvnni {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);
void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end);

}  // namespace sluice::avxvnni
