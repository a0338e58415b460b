// Ternary types: TQ1_0 packs five base-3 digits into a byte, TQ2_0 four 2-bit ones.
#include "quant/codecs.h"

namespace sluice::quant {
namespace {

// Byte v holds the digits as the fraction v / 256 in base 3 (rounded up): multiplying by 3^k modulo
// 256 drops k leading digits, the next one is then the integer part of three times the fraction.
float* DecodeTrits(const uint8_t* bytes, int count, int digits, float d, float* out) {
  uint32_t power = 1;
  for (int k = 0; k < digits; ++k, power *= 3) {
    for (int i = 0; i < count; ++i) {
      const uint32_t fraction = (bytes[i] * power) & 255;
      *out++ = float(int((fraction * 3) >> 8) - 1) * d;
    }
  }
  return out;
}

}  // namespace

void DecodeTQ1_0(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; blocks += 54) {
    const float d = LoadHalf(blocks + 52);
    out = DecodeTrits(blocks, 32, 5, d, out);
    out = DecodeTrits(blocks + 32, 16, 5, d, out);
    out = DecodeTrits(blocks + 48, 4, 4, d, out);
  }
}

void DecodeTQ2_0(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 66) {
    const float d = LoadHalf(blocks + 64);
    for (int i = 0; i < kSuperBlock; ++i) {
      const int half = i / 128, k = (i / 32) & 3, l = i & 31;
      out[i] = float(((blocks[32 * half + l] >> (2 * k)) & 3) - 1) * d;
    }
  }
}

}  // namespace sluice::quant
