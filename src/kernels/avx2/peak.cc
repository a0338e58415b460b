#include "kernels/peak.h"

#include <immintrin.h>

#include <utility>

namespace sluice::avx2 {
namespace {

// Enough chains to hide the latency of the adds, few enough for sixteen registers. Indices are
// constants: a loop over the array would keep it in memory.
constexpr int kChains = 10;
using Chains = std::make_integer_sequence<int, kChains>;
constexpr int kStreams = 8;

template <int... kI>
inline uint64_t Int8Loop(uint64_t rounds, std::integer_sequence<int, kI...>) {
  __m256i sum[kChains] = {}, u = _mm256_set1_epi8(1), s = _mm256_set1_epi8(2);
  const auto step = [&](__m256i& chain) {
    asm("" : "+x"(u), "+x"(s));  // or the product is taken out of the loop
    chain = _mm256_add_epi16(chain, _mm256_maddubs_epi16(u, s));
    asm("" : "+x"(chain));
  };
  for (uint64_t r = 0; r < rounds; ++r) (step(sum[kI]), ...);
  const auto use = [](auto& chain) { asm volatile("" : "+x"(chain)); };
  (use(sum[kI]), ...);
  return 2 * 32 * kChains * rounds;
}

template <int... kI>
inline uint64_t F32Loop(uint64_t rounds, std::integer_sequence<int, kI...>) {
  __m256 sum[kChains] = {}, a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  const auto step = [&](__m256& chain) {
    chain = _mm256_fmadd_ps(a, b, chain);
    asm("" : "+x"(chain));
  };
  for (uint64_t r = 0; r < rounds; ++r) (step(sum[kI]), ...);
  const auto use = [](auto& chain) { asm volatile("" : "+x"(chain)); };
  (use(sum[kI]), ...);
  return 2 * 8 * kChains * rounds;
}

}  // namespace

uint64_t PeakInt8(uint64_t rounds) { return Int8Loop(rounds, Chains{}); }
uint64_t PeakF32(uint64_t rounds) { return F32Loop(rounds, Chains{}); }

void PeakRead(const uint8_t* bytes, uint64_t n) {
  const uint64_t run = n / kStreams / 64 * 64;
  __m256i sum[kStreams] = {};
  for (uint64_t at = 0; at < run; at += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const auto* p = reinterpret_cast<const __m256i*>(bytes + s * run + at);
      sum[s] = _mm256_xor_si256(sum[s],
                                _mm256_xor_si256(_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)));
    }
  }
  asm volatile("" : : "r"(sum) : "memory");
}

}  // namespace sluice::avx2
