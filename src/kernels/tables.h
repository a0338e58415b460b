// The tables behind GetOps(): one per instruction set, each built in its own folder.
//
// Contract: a table is constant after first use and complete (no null entry; what an instruction
// set does not speed up points at the scalar leaf). A function declared here is defined only where
// the target architecture has that folder; ops.cc is the only caller outside the folders.
#pragma once

#include "base/cpu.h"
#include "kernels/ops.h"

namespace sluice {

// The names of the tables a processor with these features runs, best first; AvailableIsas() asks it
// for this one. `may_use_tiles` is asked only when everything else speaks for AMX.
std::vector<std::string_view> IsasFor(const CpuFeatures& cpu, bool (*may_use_tiles)());

const Ops* ScalarOps();
const Ops* Avx2Ops();         // x86-64: AVX2, FMA, F16C
const Ops* AvxVnniOps();      // AVX2's, and the byte dot product of AVX-VNNI
const Ops* Avx512Ops();       // AVX-512 F, BW, VL, DQ and VNNI, on top of AVX2's
const Ops* AmxOps();          // AMX int8 tiles for prompts, on top of AVX-512's
const Ops* NeonOps();         // aarch64 baseline
const Ops* NeonDotprodOps();  // aarch64 with the dot product extension
const Ops* NeonI8mmOps();     // and with the int8 matrix extension

}  // namespace sluice
