#include "kernels/simd/attention.h"

#include "kernels/avx2/leaves.h"
#include "kernels/avx512/floats.h"
#include "kernels/avx512/leaves.h"

namespace sluice::avx512 {

void Attention(const AttentionArgs& args) {
  if (args.dim_k % F32x16::kLanes != 0 || args.dim_v % F32x16::kLanes != 0) {
    return avx2::Attention(args);
  }
  AttentionOf<F32x16>(args);
}

}  // namespace sluice::avx512
