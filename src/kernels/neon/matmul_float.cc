#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/simd/float_product.h"

namespace sluice::neon {

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  FloatProduct<F32x8>(args, row_begin, row_end);
}

}  // namespace sluice::neon
