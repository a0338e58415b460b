// The tables behind GetOps(): one per instruction set, each built in its own folder.
//
// Contract: a table is constant after first use and complete (no null entry; what an instruction
// set does not speed up points at the scalar leaf). A function declared here is defined only where
// the target architecture has that folder; ops.cc is the only caller outside the folders.
#pragma once

#include "kernels/ops.h"

namespace sluice {

const Ops* ScalarOps();
const Ops* Avx2Ops();         // x86-64: AVX2, FMA, F16C
const Ops* NeonOps();         // aarch64 baseline
const Ops* NeonDotprodOps();  // aarch64 with the dot product extension

}  // namespace sluice
