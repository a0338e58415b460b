#include "kernels/peak.h"

#include <utility>

#include "kernels/avx512/vectors.h"

namespace sluice::avx512 {
namespace {

constexpr int kChains = 12;  // see avx2/peak.cc
using Chains = std::make_integer_sequence<int, kChains>;

// Keeps a chain in its register; the software intrinsics of the tests have none.
template <class Vector>
inline void Keep([[maybe_unused]] Vector& chain) {
#ifndef SLUICE_INTRINSICS
  asm("" : "+v"(chain));
#endif
}

template <int... kI>
inline uint64_t Int8Loop(uint64_t rounds, std::integer_sequence<int, kI...>) {
  Zmm::Int sum[kChains] = {Zmm::Same(kI)...};  // apart, or they would be one
  const Zmm::Int u = Zmm::Same(0x01010101), s = Zmm::Same(0x02020202);
  for (uint64_t r = 0; r < rounds; ++r)
    ((sum[kI] = Zmm::DotBytes(sum[kI], u, s), Keep(sum[kI])), ...);
  Zmm::Int all = Zmm::Zero();
  ((all = Zmm::Add(all, sum[kI])), ...);
  asm volatile("" : : "r"(&all) : "memory");
  return 2 * 64 * kChains * rounds;
}

template <int... kI>
inline uint64_t F32Loop(uint64_t rounds, std::integer_sequence<int, kI...>) {
  Zmm::Float sum[kChains] = {Zmm::SameFloat(kI)...};
  const Zmm::Float a = Zmm::SameFloat(0.5f), b = Zmm::SameFloat(0.25f);
  for (uint64_t r = 0; r < rounds; ++r)
    ((sum[kI] = _mm512_fmadd_ps(a, b, sum[kI]), Keep(sum[kI])), ...);
  Zmm::Float all = Zmm::FloatZero();
  ((all = Zmm::Add(all, sum[kI])), ...);
  asm volatile("" : : "r"(&all) : "memory");
  return 2 * 16 * kChains * rounds;
}

}  // namespace

uint64_t PeakInt8(uint64_t rounds) { return Int8Loop(rounds, Chains{}); }
uint64_t PeakF32(uint64_t rounds) { return F32Loop(rounds, Chains{}); }

}  // namespace sluice::avx512
