#include "kernels/simd/attention.h"

#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::neon {

void Attention(const AttentionArgs& args) {
  if (args.dim_k % F32x8::kLanes != 0 || args.dim_v % F32x8::kLanes != 0) {
    return scalar::Attention(args);
  }
  AttentionOf<F32x8>(args);
}

}  // namespace sluice::neon
