#include "kernels/avx2/leaves.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avxvnni/matmul.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.x.format) {
    case ActFormat::kQ8x32:
      return avxvnni::MatmulLegacy(args, row_begin, row_end);
    case ActFormat::kQ8x256:
      return avxvnni::MatmulK(args, row_begin, row_end);
    case ActFormat::kF32:
      return avx2::MatmulFloat(args, row_begin, row_end);
  }
}

constexpr Ops kOps = avx2::TableOf("avxvnni", Matmul);

}  // namespace

const Ops* AvxVnniOps() { return &kOps; }

}  // namespace sluice
