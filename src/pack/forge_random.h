// Random numbers that are the same everywhere: what a seed means must not depend on a library.
//
// Contract: plain values, no state shared; a stream is named by a seed and a label.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

// A bijection with good avalanche (the finaliser of splitmix64).
constexpr uint64_t ForgeMix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class ForgeRandom {
 public:
  ForgeRandom(uint64_t seed, std::string_view label) : state_(ForgeMix(seed + 0x9e3779b97f4a7c15)) {
    for (const char c : label) state_ = ForgeMix(state_ ^ static_cast<uint8_t>(c)) + 1;
  }

  uint64_t Next() { return ForgeMix(state_ += 0x9e3779b97f4a7c15ull); }
  // Below n, n > 0; the bias is below n / 2^32.
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(((Next() >> 32) * n) >> 32); }
  // In [low, high).
  float Real(float low, float high) {
    return low + (high - low) * static_cast<float>(Next() >> 40) * 0x1p-24f;
  }

 private:
  uint64_t state_;
};

}  // namespace sluice
