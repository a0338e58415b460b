#include "kernels/avx512/floats.h"
#include "kernels/avx512/matmul.h"
#include "kernels/simd/float_product.h"

namespace sluice::avx512 {

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  FloatProduct<F32x16>(args, row_begin, row_end);
}

}  // namespace sluice::avx512
