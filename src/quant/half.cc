// IEEE half and bfloat16 by integer arithmetic alone: no mode of the FPU (flush-to-zero, rounding)
// can change a scale.
#include <bit>

#include "quant/types.h"

namespace sluice {

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    const int shift = std::countl_zero(mantissa) - 21;  // brings the leading one to bit 10
    mantissa = (mantissa << shift) & 0x3FF;
    return std::bit_cast<float>(sign | uint32_t(113 - shift) << 23 | mantissa << 13);
  }
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)
    return uint16_t(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));  // quiet NaN
  if (magnitude >= 0x477FF000) return uint16_t(sign | 0x7C00);  // 65520 and above round to infinity
  if (magnitude < 0x33000000) return sign;                      // below 2^-25 rounds to zero
  if (magnitude < 0x38800000) {                                 // below 2^-14: a subnormal half
    const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t shift = 126 - (magnitude >> 23);  // 14..24
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t tie = 1u << (shift - 1);
    return uint16_t(sign | (kept + (rest > tie || (rest == tie && (kept & 1)))));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return uint16_t(sign | ((rounded - 0x38000000) >> 13));
}

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return uint16_t((bits >> 16) | 0x40);  // quiet NaN
  return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace sluice
