#include "kernels/avx512/leaves.h"
#include "kernels/avx512/matmul.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.x.format) {
    case ActFormat::kQ8x32:
      return avx512::MatmulLegacy(args, row_begin, row_end);
    case ActFormat::kQ8x256:
      return avx512::MatmulK(args, row_begin, row_end);
    case ActFormat::kF32:
      return avx512::MatmulFloat(args, row_begin, row_end);
  }
}

constexpr Ops kOps = avx512::TableOf("avx512", Matmul);

}  // namespace

const Ops* Avx512Ops() { return &kOps; }

}  // namespace sluice
