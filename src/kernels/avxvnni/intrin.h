// The one door to intrinsics newer than AVX2.
//
// Contract: SLUICE_INTRINSICS names a header that stands in for the compiler's; only the tests set
// it, to run these units in software on a processor that lacks the instructions.
#pragma once

#ifdef SLUICE_INTRINSICS
#include SLUICE_INTRINSICS
#else
#include <immintrin.h>
#endif
