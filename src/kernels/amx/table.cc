#include "kernels/amx/matmul.h"
#include "kernels/avx2/leaves.h"
#include "kernels/avx512/matmul.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  switch (args.x.format) {
    case ActFormat::kQ8x32:
      return amx::MatmulLegacy(args, row_begin, row_end);
    case ActFormat::kQ8x256:
      return amx::MatmulK(args, row_begin, row_end);
    case ActFormat::kF32:
      return avx512::MatmulFloat(args, row_begin, row_end);
  }
}

constexpr Ops kOps = {
    .isa = "amx",
    .matmul = Matmul,
    .quantize = avx2::Quantize,
    .rms_norm = avx2::RmsNorm,
    .rope = avx2::Rope,
    .silu_mul = avx2::SiluMul,
    .gelu_tanh_mul = avx2::GeluTanhMul,
    .swiglu_clamped_mul = avx2::SwigluClampedMul,
    .add = avx2::Add,
    .mul_sigmoid = avx2::MulSigmoid,
    .softmax = avx2::Softmax,
    .kv_store = avx2::KvStore,
    .attention = avx2::Attention,
    .delta_step = avx2::DeltaStep,
    .conv_step = avx2::ConvStep,
};

}  // namespace

const Ops* AmxOps() { return &kOps; }

}  // namespace sluice
