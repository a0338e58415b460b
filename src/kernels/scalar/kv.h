// Reading K and V rows back to float, for the scalar attention and the tests.
//
// Contract: pure; `begin` is a multiple of 32 and `count` at most 32.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace sluice::scalar {

void LoadKv(KvFormat format, bool is_value, const uint8_t* row, uint32_t begin, uint32_t count,
            float* out);

}  // namespace sluice::scalar
