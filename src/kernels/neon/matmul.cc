#include "kernels/neon/leaves.h"
#include "kernels/neon/matmul_int.h"

namespace sluice::neon {
namespace {

// Baseline: widening multiplies; two int8 products (at most 2 * 128 * 127) fit int16.
struct Isa {
  static constexpr uint32_t kFewTokens = 1;
  static constexpr bool kPanel = false;
  static int32x4_t Dot(int32x4_t acc, int8x16_t a, int8x16_t b) {
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpadalq_s16(acc, vmlal_high_s8(low, a, b));
  }
};

}  // namespace

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kF32) return MatmulFloat(args, row_begin, row_end);
  MatmulInt<Isa>(args, row_begin, row_end);
}

}  // namespace sluice::neon
