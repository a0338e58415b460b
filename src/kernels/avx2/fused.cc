// Rows made and quantised in one pass: simd/fused.h over AVX2.
#include "kernels/simd/fused.h"

#include "kernels/avx2/leaves.h"
#include "kernels/avx2/quantizer.h"

namespace sluice::avx2 {

void QuantizeRow(const float* x, uint32_t n, const ActOut& out) {
  QuantizeRowOf<Quantizer8>(x, n, out);
}

void NormRow(const NormArgs& args) { NormRowOf<Quantizer8, SumOfSquares, Add, RmsNorm>(args); }

void GluRow(const GluArgs& args) {
  GluRowOf<Quantizer8, SiluMul, GeluTanhMul, SwigluClampedMul>(args);
}

}  // namespace sluice::avx2
