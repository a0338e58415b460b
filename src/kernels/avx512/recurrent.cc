#include "kernels/simd/recurrent.h"

#include "kernels/avx2/leaves.h"
#include "kernels/avx512/floats.h"
#include "kernels/avx512/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::avx512 {

void DeltaStep(const DeltaStepArgs& args) {
  if (args.vd % F32x16::kLanes != 0) return avx2::DeltaStep(args);
  DeltaStepOf<F32x16>(args);
}

void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y) {
  if (kernel != 4) return scalar::ConvStep(w, kernel, x, state, begin, end, y);
  ConvStepOf<F32x16>(w, x, state, begin, end, y);
}

}  // namespace sluice::avx512
