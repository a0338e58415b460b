// Ternary encoders: the scale is the largest magnitude, elements round half away from zero to -1,
// 0, 1.
#include <algorithm>
#include <cmath>

#include "quant/codecs.h"

namespace sluice::quant {
namespace {

// Digits 0, 1, 2 of a block; false when the scale overflows.
bool Ternarize(const float* x, uint8_t* scale, uint8_t* digits) {
  float d = 0;
  for (int i = 0; i < kSuperBlock; ++i) d = std::max(d, std::fabs(x[i]));
  if (!StoreHalf(scale, d)) return false;
  float inverse = d > 0 ? 1.0f / d : 0.0f;
  if (!std::isfinite(inverse)) inverse = 0;
  for (int i = 0; i < kSuperBlock; ++i) {
    const float v = x[i] * inverse;
    digits[i] = uint8_t(1 + int(v >= 0.5f) - int(v <= -0.5f));
  }
  return true;
}

// `count` bytes of `places` digits each; missing low digits are zero. The number is stored as a
// fraction of 243 in 256ths, rounded up, which is what lets the decoder take digits off the top.
void PackTrits(const uint8_t* digits, int count, int places, uint8_t* bytes) {
  for (int i = 0; i < count; ++i) {
    uint32_t number = 0;
    for (int k = 0; k < 5; ++k) number = 3 * number + (k < places ? digits[k * count + i] : 0);
    bytes[i] = uint8_t((number * 256 + 242) / 243);
  }
}

}  // namespace

SLUICE_ENCODER(TQ1_0) {
  uint8_t digits[kSuperBlock];
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 54) {
    if (!Ternarize(in, blocks + 52, digits)) return false;
    PackTrits(digits, 32, 5, blocks);
    PackTrits(digits + 160, 16, 5, blocks + 32);
    PackTrits(digits + 240, 4, 4, blocks + 48);
  }
  return true;
}

SLUICE_ENCODER(TQ2_0) {
  uint8_t digits[kSuperBlock];
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 66) {
    if (!Ternarize(in, blocks + 64, digits)) return false;
    for (int i = 0; i < 64; ++i) {
      const uint8_t* d = digits + 128 * (i / 32) + i % 32;
      blocks[i] = uint8_t(d[0] | d[32] << 2 | d[64] << 4 | d[96] << 6);
    }
  }
  return true;
}

}  // namespace sluice::quant
