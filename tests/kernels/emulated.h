// Kernel tables of instruction sets this processor may lack, run in software: the same sources,
// built a second time against emulated_intrinsics.h (emulated.cmake).
//
// Contract: test code only. Empty where the build has no SIMDe headers or the processor no AVX2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

namespace sluice::testing {

// "emulated_avx512" and so on.
std::vector<std::string> EmulatedNames();
// nullptr for a name that is not among them.
const Ops* EmulatedOps(std::string_view name);

}  // namespace sluice::testing
