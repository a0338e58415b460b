#include "kernels/avxvnni/k_product.h"
#include "kernels/avxvnni/matmul.h"

namespace sluice::avxvnni {

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  WithKType(args.type, [&](auto type) { KRows<Ymm, decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::avxvnni
