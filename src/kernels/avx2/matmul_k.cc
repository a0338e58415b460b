// K-quants and their kin.
#include "kernels/avx2/k_product.h"
#include "kernels/avx2/k_types.h"
#include "kernels/avx2/matmul.h"

namespace sluice::avx2 {

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ2_K:
      return KRows<TypeQ2_K>(args, row_begin, row_end);
    case WeightType::kQ3_K:
      return KRows<TypeQ3_K>(args, row_begin, row_end);
    case WeightType::kQ4_K:
      return KRows<TypeQ4_K>(args, row_begin, row_end);
    case WeightType::kQ5_K:
      return KRows<TypeQ5_K>(args, row_begin, row_end);
    case WeightType::kQ6_K:
      return KRows<TypeQ6_K>(args, row_begin, row_end);
    case WeightType::kIQ4_XS:
      return KRows<TypeIQ4_XS>(args, row_begin, row_end);
    case WeightType::kTQ1_0:
      return KRows<TypeTQ1_0>(args, row_begin, row_end);
    case WeightType::kTQ2_0:
      return KRows<TypeTQ2_0>(args, row_begin, row_end);
    default:
      return MatmulCodebook(args, row_begin, row_end);
  }
}

}  // namespace sluice::avx2
