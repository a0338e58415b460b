// Activations to int8: the exact integers, scales and sums of scalar/quantize.cc.
#include <arm_neon.h>

#include "kernels/neon/leaves.h"

namespace sluice::neon {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u, kTinyBits = 0x03800000u;  // 2^-120

float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }

uint32_t MaxBits(const float* x, uint32_t n) {
  uint32x4_t max = vdupq_n_u32(0);
  for (uint32_t i = 0; i < n; i += 4) {
    max =
        vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
  }
  return vmaxvq_u32(max);
}

int8x16_t Quants16(const float* x, float inverse) {
  int32x4_t v[4];
  for (int i = 0; i < 4; ++i) v[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse));
  const int16x8_t low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
  return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

void Block(const float* x, uint32_t n, uint32_t sum_elems, int8_t* q, float* scale, int16_t* sums) {
  const uint32_t bits = MaxBits(x, n);
  const bool usable = bits >= kTinyBits && bits < kInfBits;
  const float max_abs = FloatOf(bits);
  *scale = usable ? max_abs / 127.0f : FloatOf(bits >= kInfBits ? 0x7fc00000u : 0u);
  const float inverse = usable ? 127.0f / max_abs : 0.0f;
  for (uint32_t s = 0; s < n / sum_elems; ++s) sums[s] = 0;
  for (uint32_t i = 0; i < n; i += 16) {
    const int8x16_t v = usable ? Quants16(x + i, inverse) : vdupq_n_s8(0);
    vst1q_s8(q + i, v);
    sums[i / sum_elems] = static_cast<int16_t>(sums[i / sum_elems] + vaddlvq_s8(v));
  }
}

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  if (format == ActFormat::kF32) return;
  const uint32_t block = format == ActFormat::kQ8x32 ? 32 : 256;
  const uint32_t sum_elems = format == ActFormat::kQ8x32 ? 32 : 16;
  for (uint32_t i = 0; i < n; i += block) {
    Block(x + i, block, sum_elems, q + i, scale + i / block, sums + i / sum_elems);
  }
}

}  // namespace sluice::neon
