// Activations to int8 and rows made and quantised in one pass: simd/fused.h over two NEON vectors.
#include "kernels/simd/fused.h"

#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/simd/elementwise.h"

namespace sluice::neon {
namespace {

// What fused.h calls Q.
struct Quantizer8 {
  using V = F32x8;
  static constexpr uint32_t kVecs = 4;
  using Largest = uint32x4_t;

  static Largest Nothing() { return vdupq_n_u32(0); }
  // As bits, NaN and Inf are larger than every finite value.
  static Largest Include(Largest m, F8 v) {
    const uint32x4_t mask = vdupq_n_u32(0x7fffffff);
    m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(v.low), mask));
    return vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(v.high), mask));
  }
  static uint32_t Bits(Largest m) { return vmaxvq_u32(m); }

  template <bool kRest>
  static int16x4_t Round4(float32x4_t* v, float factor, float scale) {
    const int32x4_t q = vcvtnq_s32_f32(vmulq_n_f32(*v, factor));
    if constexpr (kRest) *v = vsubq_f32(*v, vmulq_n_f32(vcvtq_f32_s32(q), scale));
    return vmovn_s32(q);
  }
  template <bool kRest>
  static int8x8_t Round8(F8* v, float factor, float scale) {
    const int16x4_t low = Round4<kRest>(&v->low, factor, scale);
    return vmovn_s16(vcombine_s16(low, Round4<kRest>(&v->high, factor, scale)));
  }
  template <bool kRest>
  static void Round(F8* v, float factor, int8_t* q, int16_t* sums, float scale) {
    for (uint32_t half = 0; half < 2; ++half, v += 2) {
      const int8x8_t low = Round8<kRest>(v, factor, scale);
      const int8x16_t quants = vcombine_s8(low, Round8<kRest>(v + 1, factor, scale));
      vst1q_s8(q + 16 * half, quants);
      sums[half] = vaddlvq_s8(quants);
    }
  }
};

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  QuantizeRow(x, n, {.format = format, .q = q, .scale = scale, .sums = sums});
}

void QuantizeRow(const float* x, uint32_t n, const ActOut& out) {
  QuantizeRowOf<Quantizer8>(x, n, out);
}

void NormRow(const NormArgs& args) {
  NormRowOf<Quantizer8, SumOfSquares<F32x8>, Add, RmsNorm>(args);
}

void GluRow(const GluArgs& args) {
  GluRowOf<Quantizer8, SiluMul, GeluTanhMul, SwigluClampedMul>(args);
}

}  // namespace sluice::neon
