#include "kernels/peak.h"

#include "kernels/avx512/vectors.h"

namespace sluice::avx512 {
namespace {

constexpr int kChains = 12;

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  Zmm::Int sum[kChains];
  for (Zmm::Int& chain : sum) chain = Zmm::Zero();
  const Zmm::Int u = Zmm::Same(0x01010101), s = Zmm::Same(0x02020202);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (Zmm::Int& chain : sum) chain = Zmm::DotBytes(chain, u, s);
  }
  for (Zmm::Int& chain : sum) asm volatile("" : : "r"(&chain) : "memory");
  return 2 * 64 * kChains * rounds;
}

uint64_t PeakF32(uint64_t rounds) {
  Zmm::Float sum[kChains];
  for (Zmm::Float& chain : sum) chain = Zmm::FloatZero();
  const Zmm::Float a = Zmm::SameFloat(0.5f), b = Zmm::SameFloat(0.25f);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (Zmm::Float& chain : sum) chain = _mm512_fmadd_ps(a, b, chain);
  }
  for (Zmm::Float& chain : sum) asm volatile("" : : "r"(&chain) : "memory");
  return 2 * 16 * kChains * rounds;
}

}  // namespace sluice::avx512
