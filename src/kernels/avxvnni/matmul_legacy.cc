#include "kernels/avxvnni/legacy_product.h"
#include "kernels/avxvnni/matmul.h"

namespace sluice::avxvnni {

void MatmulLegacy(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  WithLegacyType(args.type,
                 [&](auto type) { LegacyRows<Ymm, decltype(type)>(args, row_begin, row_end); });
}

}  // namespace sluice::avxvnni
