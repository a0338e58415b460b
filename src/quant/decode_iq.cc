// Four-bit indices into a fixed table of 16 values: IQ4_NL, IQ4_XS, MXFP4.
#include "quant/codecs.h"

namespace sluice::quant {
namespace {

// 32 elements from 16 bytes: low nibbles first, then the high ones.
void DecodeNibbles(const float (&table)[16], const uint8_t* bytes, float scale, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = table[bytes[j] & 15] * scale;
    out[j + 16] = table[bytes[j] >> 4] * scale;
  }
}

}  // namespace

void DecodeIQ4_NL(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 18) {
    DecodeNibbles(kIq4Values, blocks + 2, LoadHalf(blocks), out);
  }
}

void DecodeIQ4_XS(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 136) {
    const float d = LoadHalf(blocks);
    const uint32_t high = LoadU16(blocks + 2);
    for (int b = 0; b < 8; ++b) {
      const int low = (blocks[4 + b / 2] >> (4 * (b & 1))) & 15;
      const int scale = int(uint32_t(low) | ((high >> (2 * b)) & 3) << 4) - 32;
      DecodeNibbles(kIq4Values, blocks + 8 + 16 * b, d * float(scale), out + 32 * b);
    }
  }
}

void DecodeMXFP4(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 17) {
    DecodeNibbles(kMxfp4Values, blocks + 1, Mxfp4Scale(blocks[0]), out);
  }
}

}  // namespace sluice::quant
