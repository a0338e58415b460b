// exp and log that give the same bits on every machine.
//
// Contract: pure; only IEEE additions, multiplications and exponent bits (the build forbids
// contraction), so no libm version and no fused multiply-add can change a sampled token. Relative
// error below 1e-13, checked in tests/runtime/sampler_test.cc.
#pragma once

#include <cstdint>

namespace sluice {

// e^x for -700 <= x <= 0. No branch: a loop over it becomes vector code.
inline double DetExp(double x) {
  constexpr double kLog2E = 1.4426950408889634, kShift = 6755399441055744.0;  // 1.5 * 2^52: rounds
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const double shifted = x * kLog2E + kShift;  // its low bits are the integer nearest to x / ln(2)
  const double k = shifted - kShift;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
  const double a = (1 + r) + (0.5 + r * (1.0 / 6)) * r2;
  const double b = (1.0 / 24 + r * (1.0 / 120)) + (1.0 / 720 + r * (1.0 / 5040)) * r2;
  const double c = (1.0 / 40320 + r * (1.0 / 362880)) + (1.0 / 3628800 + r * (1.0 / 39916800)) * r2;
  const double p = (a + b * r4) + (c + (1.0 / 479001600) * r4) * r8;
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, shifted) + 1023) << 52);
}

// ln(x) for normal x > 0.
inline double DetLog(double x) {
  uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | (uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln(m) = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.172.
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double p = 1.0 / 19;
  for (int odd = 17; odd >= 1; odd -= 2) p = p * s2 + 1.0 / odd;
  return static_cast<double>(exponent) * 0.69314718055994531 + 2 * s * p;
}

}  // namespace sluice
