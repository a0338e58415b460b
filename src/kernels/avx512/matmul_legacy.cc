#include "kernels/avx2/matmul.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/vectors.h"
#include "kernels/avxvnni/legacy_product.h"

namespace sluice::avx512 {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (row_end - row_begin < Zmm::kLanes) return avx2::MatmulLegacy(args, row_begin, row_end);
  switch (args.type) {
    case WeightType::kQ4_0:
      return LegacyRows<Zmm, TypeQ4_0>(args, row_begin, row_end);
    case WeightType::kQ4_1:
      return LegacyRows<Zmm, TypeQ4_1>(args, row_begin, row_end);
    case WeightType::kQ5_0:
      return LegacyRows<Zmm, TypeQ5_0>(args, row_begin, row_end);
    case WeightType::kQ5_1:
      return LegacyRows<Zmm, TypeQ5_1>(args, row_begin, row_end);
    case WeightType::kQ8_0:
      return LegacyRows<Zmm, VnniQ8_0>(args, row_begin, row_end);
    case WeightType::kIQ4_NL:
      return LegacyRows<Zmm, VnniIQ4_NL>(args, row_begin, row_end);
    case WeightType::kMXFP4:
      return LegacyRows<Zmm, TypeMXFP4>(args, row_begin, row_end);
    default:
      return avx2::MatmulLegacy(args, row_begin, row_end);
  }
}

}  // namespace sluice::avx512
