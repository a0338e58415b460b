#include "kernels/simd/recurrent.h"

#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::neon {

void DeltaStep(const DeltaStepArgs& args) {
  if (args.vd % F32x8::kLanes != 0) return scalar::DeltaStep(args);
  DeltaStepOf<F32x8>(args);
}

void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y) {
  if (kernel != 4) return scalar::ConvStep(w, kernel, x, state, begin, end, y);
  ConvStepOf<F32x8>(w, x, state, begin, end, y);
}

}  // namespace sluice::neon
