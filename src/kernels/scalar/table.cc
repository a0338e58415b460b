#include "kernels/scalar/leaves.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

constexpr Ops kOps = {
    .isa = "scalar",
    .matmul = scalar::Matmul,
    .quantize = scalar::Quantize,
    .quantize_row = scalar::QuantizeRow,
    .norm_row = scalar::NormRow,
    .glu_row = scalar::GluRow,
    .rms_norm = scalar::RmsNorm,
    .rope = scalar::Rope,
    .silu_mul = scalar::SiluMul,
    .gelu_tanh_mul = scalar::GeluTanhMul,
    .swiglu_clamped_mul = scalar::SwigluClampedMul,
    .add = scalar::Add,
    .mul_sigmoid = scalar::MulSigmoid,
    .softmax = scalar::Softmax,
    .kv_store = scalar::KvStore,
    .attention = scalar::Attention,
    .delta_step = scalar::DeltaStep,
    .conv_step = scalar::ConvStep,
};

}  // namespace

const Ops* ScalarOps() { return &kOps; }

}  // namespace sluice
