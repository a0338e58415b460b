// The exponential of eight floats (simd/exp.h).
//
// Contract: as there.
#pragma once

#include "kernels/avx2/floats.h"
#include "kernels/simd/exp.h"

namespace sluice {
namespace {

inline __m256 Exp(__m256 x) { return ExpOf<F32x8>(x); }
inline __m256 Sigmoid(__m256 x) { return SigmoidOf<F32x8>(x); }

}  // namespace
}  // namespace sluice
