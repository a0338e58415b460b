#include "kernels/avx2/matmul.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/vectors.h"
#include "kernels/avxvnni/k_product.h"

namespace sluice::avx512 {

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (row_end - row_begin < Zmm::kLanes) return avx2::MatmulK(args, row_begin, row_end);
  WithKType(args.type, [&](auto type) { KRows<Zmm, decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::avx512
