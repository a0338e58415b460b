// The dot product extension: sixteen products in one instruction.
#include "kernels/neon/leaves.h"
#include "kernels/neon/matmul_int.h"

namespace sluice::neon_dotprod {
namespace {

struct Dot {
  static int32x4_t Add(int32x4_t acc, int8x16_t a, int8x16_t b) { return vdotq_s32(acc, a, b); }
};

}  // namespace

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kF32) return neon::MatmulFloat(args, row_begin, row_end);
  MatmulInt<Dot>(args, row_begin, row_end);
}

}  // namespace sluice::neon_dotprod
