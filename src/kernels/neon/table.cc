#include "kernels/neon/leaves.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

Ops Table(const char* isa, decltype(Ops::matmul) matmul) {
  return {
      .isa = isa,
      .matmul = matmul,
      .quantize = neon::Quantize,
      .quantize_row = neon::QuantizeRow,
      .norm_row = neon::NormRow,
      .glu_row = neon::GluRow,
      .rms_norm = neon::RmsNorm,
      .rope = neon::Rope,
      .silu_mul = neon::SiluMul,
      .gelu_tanh_mul = neon::GeluTanhMul,
      .swiglu_clamped_mul = neon::SwigluClampedMul,
      .add = neon::Add,
      .mul_sigmoid = neon::MulSigmoid,
      .softmax = neon::Softmax,
      .kv_store = neon::KvStore,
      .attention = neon::Attention,
      .delta_step = neon::DeltaStep,
      .conv_step = neon::ConvStep,
  };
}

}  // namespace

const Ops* NeonOps() {
  static const Ops ops = Table("neon", neon::Matmul);
  return &ops;
}

const Ops* NeonDotprodOps() {
  static const Ops ops = Table("neon_dotprod", neon_dotprod::Matmul);
  return &ops;
}

const Ops* NeonI8mmOps() {
  static const Ops ops = Table("neon_i8mm", neon_i8mm::Matmul);
  return &ops;
}

}  // namespace sluice
