#include "kernels/avx2/matmul.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/vectors.h"
#include "kernels/avxvnni/k_product.h"

namespace sluice::avx512 {

void MatmulK(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (row_end - row_begin < Zmm::kLanes) return avx2::MatmulK(args, row_begin, row_end);
  switch (args.type) {
    case WeightType::kQ2_K:
      return KRows<Zmm, VnniQ2_K>(args, row_begin, row_end);
    case WeightType::kQ3_K:
      return KRows<Zmm, VnniQ3_K>(args, row_begin, row_end);
    case WeightType::kQ4_K:
      return KRows<Zmm, TypeQ4_K>(args, row_begin, row_end);
    case WeightType::kQ5_K:
      return KRows<Zmm, TypeQ5_K>(args, row_begin, row_end);
    case WeightType::kQ6_K:
      return KRows<Zmm, TypeQ6_K>(args, row_begin, row_end);
    case WeightType::kIQ4_XS:
      return KRows<Zmm, VnniIQ4_XS>(args, row_begin, row_end);
    case WeightType::kTQ1_0:
      return KRows<Zmm, TypeTQ1_0>(args, row_begin, row_end);
    case WeightType::kTQ2_0:
      return KRows<Zmm, TypeTQ2_0>(args, row_begin, row_end);
    default:
      return avx2::MatmulK(args, row_begin, row_end);
  }
}

}  // namespace sluice::avx512
