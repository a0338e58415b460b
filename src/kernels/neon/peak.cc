#include "kernels/peak.h"

#include <arm_neon.h>

namespace sluice::neon {
namespace {

constexpr int kChains = 8;

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  int32x4_t sum[kChains] = {};
  int8x16_t a = vdupq_n_s8(1), b = vdupq_n_s8(2);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (int32x4_t& chain : sum) {
      asm("" : "+w"(a), "+w"(b));  // or the products are taken out of the loop
      chain = vpadalq_s16(chain, vmlal_high_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), a, b));
      asm("" : "+w"(chain));
    }
  }
  for (int32x4_t& chain : sum) asm volatile("" : "+w"(chain));
  return 2 * 16 * kChains * rounds;
}

uint64_t PeakF32(uint64_t rounds) {
  float32x4_t sum[kChains] = {};
  float32x4_t a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (float32x4_t& chain : sum) {
      chain = vfmaq_f32(chain, a, b);
      asm("" : "+w"(chain));
    }
  }
  for (float32x4_t& chain : sum) asm volatile("" : "+w"(chain));
  return 2 * 4 * kChains * rounds;
}

}  // namespace sluice::neon
