#include "kernels/avx2/matmul.h"
#include "kernels/avxvnni/legacy_product.h"
#include "kernels/avxvnni/matmul.h"

namespace sluice::avxvnni {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.type) {
    case WeightType::kQ4_0:
      return LegacyRows<Ymm, TypeQ4_0>(args, row_begin, row_end);
    case WeightType::kQ4_1:
      return LegacyRows<Ymm, TypeQ4_1>(args, row_begin, row_end);
    case WeightType::kQ5_0:
      return LegacyRows<Ymm, TypeQ5_0>(args, row_begin, row_end);
    case WeightType::kQ5_1:
      return LegacyRows<Ymm, TypeQ5_1>(args, row_begin, row_end);
    case WeightType::kQ8_0:
      return LegacyRows<Ymm, VnniQ8_0>(args, row_begin, row_end);
    case WeightType::kIQ4_NL:
      return LegacyRows<Ymm, VnniIQ4_NL>(args, row_begin, row_end);
    case WeightType::kMXFP4:
      return LegacyRows<Ymm, TypeMXFP4>(args, row_begin, row_end);
    default:
      return avx2::MatmulLegacy(args, row_begin, row_end);
  }
}

}  // namespace sluice::avxvnni
