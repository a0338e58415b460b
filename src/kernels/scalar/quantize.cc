// Activations to int8. Every instruction set gives these exact integers, scales and sums:
//   scale = maxabs / 127, q = x * (127 / maxabs) rounded to nearest even.
// A block that holds NaN or Inf gets scale NaN and zeros, so that the logits become NaN and the
// engine sees it. A block below 2^-120 (where the reciprocal overflows) is zero.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u, kTinyBits = 0x03800000u;  // 2^-120

void QuantizeBlock(const float* x, uint32_t n, uint32_t sum_elems, int8_t* q, float* scale,
                   int16_t* sums) {
  uint32_t max_bits = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const bool usable = max_bits >= kTinyBits && max_bits < kInfBits;
  const float max_abs = std::bit_cast<float>(max_bits);
  *scale = usable                 ? max_abs / 127.0f
           : max_bits >= kInfBits ? std::numeric_limits<float>::quiet_NaN()
                                  : 0.0f;
  const float inverse = usable ? 127.0f / max_abs : 0.0f;
  for (uint32_t s = 0; s < n / sum_elems; ++s) {
    int32_t sum = 0;
    for (uint32_t i = s * sum_elems; i < (s + 1) * sum_elems; ++i) {
      q[i] = usable ? static_cast<int8_t>(std::nearbyintf(x[i] * inverse)) : int8_t{0};
      sum += q[i];
    }
    sums[s] = static_cast<int16_t>(sum);
  }
}

}  // namespace

void Quantize(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
              int16_t* sums) {
  if (format == ActFormat::kF32) return;
  const uint32_t block = format == ActFormat::kQ8x32 ? 32 : 256;
  const uint32_t sum_elems = format == ActFormat::kQ8x32 ? 32 : 16;
  for (uint32_t i = 0; i < n; i += block) {
    QuantizeBlock(x + i, block, sum_elems, q + i, scale + i / block, sums + i / sum_elems);
  }
}

}  // namespace sluice::scalar
