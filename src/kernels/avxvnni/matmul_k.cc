#include "kernels/avx2/matmul.h"
#include "kernels/avxvnni/k_product.h"
#include "kernels/avxvnni/matmul.h"

namespace sluice::avxvnni {

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ2_K:
      return KRows<Ymm, VnniQ2_K>(args, row_begin, row_end);
    case WeightType::kQ3_K:
      return KRows<Ymm, VnniQ3_K>(args, row_begin, row_end);
    case WeightType::kQ4_K:
      return KRows<Ymm, TypeQ4_K>(args, row_begin, row_end);
    case WeightType::kQ5_K:
      return KRows<Ymm, TypeQ5_K>(args, row_begin, row_end);
    case WeightType::kQ6_K:
      return KRows<Ymm, TypeQ6_K>(args, row_begin, row_end);
    case WeightType::kIQ4_XS:
      return KRows<Ymm, VnniIQ4_XS>(args, row_begin, row_end);
    case WeightType::kTQ1_0:
      return KRows<Ymm, TypeTQ1_0>(args, row_begin, row_end);
    case WeightType::kTQ2_0:
      return KRows<Ymm, TypeTQ2_0>(args, row_begin, row_end);
    default:
      return avx2::MatmulK(args, row_begin, row_end);
  }
}

}  // namespace sluice::avxvnni
