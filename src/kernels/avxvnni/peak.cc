#include "kernels/peak.h"

#include "kernels/avxvnni/vectors.h"

namespace sluice::avxvnni {
namespace {

constexpr int kChains = 10;

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  __m256i sum[kChains];
  for (__m256i& chain : sum) chain = _mm256_setzero_si256();
  const __m256i u = _mm256_set1_epi8(1), s = _mm256_set1_epi8(2);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (__m256i& chain : sum) chain = Ymm::DotBytes(chain, u, s);
  }
  for (__m256i& chain : sum) asm volatile("" : : "r"(&chain) : "memory");
  return 2 * 32 * kChains * rounds;
}

}  // namespace sluice::avxvnni
