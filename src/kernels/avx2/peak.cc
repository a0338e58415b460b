#include "kernels/peak.h"

#include <immintrin.h>

namespace sluice::avx2 {
namespace {

// Enough chains to hide the latency of the adds, few enough for sixteen registers.
constexpr int kChains = 10;

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  __m256i sum[kChains] = {}, u = _mm256_set1_epi8(1), s = _mm256_set1_epi8(2);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (__m256i& chain : sum) {
      asm("" : "+x"(u), "+x"(s));  // or the product is taken out of the loop
      chain = _mm256_add_epi16(chain, _mm256_maddubs_epi16(u, s));
      asm("" : "+x"(chain));
    }
  }
  for (__m256i& chain : sum) asm volatile("" : "+x"(chain));
  return 2 * 32 * kChains * rounds;
}

uint64_t PeakF32(uint64_t rounds) {
  __m256 sum[kChains] = {}, a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (__m256& chain : sum) {
      chain = _mm256_fmadd_ps(a, b, chain);
      asm("" : "+x"(chain));
    }
  }
  for (__m256& chain : sum) asm volatile("" : "+x"(chain));
  return 2 * 8 * kChains * rounds;
}

}  // namespace sluice::avx2
