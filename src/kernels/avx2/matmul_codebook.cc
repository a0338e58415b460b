// The codebook types IQ1, IQ2 and IQ3.
#include "kernels/avx2/matmul.h"

#ifdef SLUICE_CODEBOOKS
#include "kernels/avx2/codebook_types.h"
#include "kernels/avx2/k_product.h"
#endif

namespace sluice::avx2 {

void MatmulCodebook([[maybe_unused]] const MatmulArgs& args, [[maybe_unused]] uint32_t row_begin,
                    [[maybe_unused]] uint32_t row_end) {
#ifdef SLUICE_CODEBOOKS
  switch (args.type) {
    case WeightType::kIQ1_S:
      return KRows<TypeIQ1_S>(args, row_begin, row_end);
    case WeightType::kIQ1_M:
      return KRows<TypeIQ1_M>(args, row_begin, row_end);
    case WeightType::kIQ2_XXS:
      return KRows<TypeIQ2_XXS>(args, row_begin, row_end);
    case WeightType::kIQ2_XS:
      return KRows<TypeIQ2_XS>(args, row_begin, row_end);
    case WeightType::kIQ2_S:
      return KRows<TypeIQ2_S>(args, row_begin, row_end);
    case WeightType::kIQ3_XXS:
      return KRows<TypeIQ3_XXS>(args, row_begin, row_end);
    default:
      return KRows<TypeIQ3_S>(args, row_begin, row_end);
  }
#endif
}

}  // namespace sluice::avx2
