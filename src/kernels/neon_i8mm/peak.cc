#include "kernels/peak.h"

#include <arm_neon.h>

namespace sluice::neon_i8mm {

// 2 x 8 times 8 x 2 bytes.
uint64_t PeakInt8(uint64_t rounds) {
  constexpr int kChains = 8;
  int32x4_t sum[kChains] = {};
  const int8x16_t a = vdupq_n_s8(1), b = vdupq_n_s8(2);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (int32x4_t& chain : sum) {
      chain = vmmlaq_s32(chain, a, b);
      asm("" : "+w"(chain));
    }
  }
  for (int32x4_t& chain : sum) asm volatile("" : "+w"(chain));
  return 2 * 32 * kChains * rounds;
}

}  // namespace sluice::neon_i8mm
