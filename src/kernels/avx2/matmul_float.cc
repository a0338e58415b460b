#include "kernels/avx2/floats.h"
#include "kernels/avx2/matmul.h"
#include "kernels/simd/float_product.h"

namespace sluice::avx2 {

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  FloatProduct<F32x8>(args, row_begin, row_end);
}

}  // namespace sluice::avx2
