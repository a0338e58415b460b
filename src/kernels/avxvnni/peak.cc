#include "kernels/peak.h"

#include <utility>

#include "kernels/avxvnni/vectors.h"

namespace sluice::avxvnni {
namespace {

constexpr int kChains = 10;  // see avx2/peak.cc

template <int... kI>
inline uint64_t Loop(uint64_t rounds, std::integer_sequence<int, kI...>) {
  Ymm::Int sum[kChains] = {((void)kI, Ymm::Zero())...};
  const Ymm::Int u = Ymm::Same(0x01010101), s = Ymm::Same(0x02020202);
  const auto step = [&](Ymm::Int& chain) {
    chain = Ymm::DotBytes(chain, u, s);
    asm("" : "+x"(chain));
  };
  for (uint64_t r = 0; r < rounds; ++r) (step(sum[kI]), ...);
  const auto use = [](auto& chain) { asm volatile("" : "+x"(chain)); };
  (use(sum[kI]), ...);
  return 2 * 32 * kChains * rounds;
}

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  return Loop(rounds, std::make_integer_sequence<int, kChains>{});
}

}  // namespace sluice::avxvnni
