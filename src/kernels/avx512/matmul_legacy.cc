#include "kernels/avx2/matmul.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/vectors.h"
#include "kernels/avxvnni/legacy_product.h"

namespace sluice::avx512 {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (row_end - row_begin < Zmm::kLanes) return avx2::MatmulLegacy(args, row_begin, row_end);
  WithLegacyType(args.type,
                 [&](auto type) { LegacyRows<Zmm, decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::avx512
