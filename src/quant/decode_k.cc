// K-quants: 256 elements, integer scales per 16 or 32 of them under one or two half-precision
// scales.
#include "quant/codecs.h"
#include "quant/k_layout.h"

namespace sluice::quant {

void DecodeQ2_K(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 84) {
    const uint8_t* qs = blocks + 16;
    const float d = LoadHalf(blocks + 80), dmin = LoadHalf(blocks + 82);
    for (int s = 0; s < 16; ++s) {  // sub-blocks of 16: s = 8 * half + 2 * j + (l / 16)
      const float scale = d * float(blocks[s] & 15), offset = dmin * float(blocks[s] >> 4);
      const uint8_t* bytes = qs + 32 * (s / 8) + 16 * (s & 1);
      const int shift = s & 6;
      for (int l = 0; l < 16; ++l)
        out[16 * s + l] = scale * float((bytes[l] >> shift) & 3) - offset;
    }
  }
}

void DecodeQ3_K(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 110) {
    const uint8_t *high = blocks, *qs = blocks + 32, *scales = blocks + 96;
    const float d = LoadHalf(blocks + 108);
    for (int s = 0; s < 16; ++s) {
      const float scale = d * float(LoadQ3Scale(scales, s));
      const uint8_t *bytes = qs + 32 * (s / 8) + 16 * (s & 1), *mask = high + 16 * (s & 1);
      const int shift = s & 6, bit = s / 2;
      for (int l = 0; l < 16; ++l) {
        const int q = ((bytes[l] >> shift) & 3) + (((mask[l] >> bit) & 1) << 2) - 4;
        out[16 * s + l] = scale * float(q);
      }
    }
  }
}

void DecodeQ4_K(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 144) {
    const float d = LoadHalf(blocks), dmin = LoadHalf(blocks + 2);
    for (int b = 0; b < 8; ++b) {
      const ScaleMin sm = LoadScaleMin(blocks + 4, b);
      const float scale = d * float(sm.scale), offset = dmin * float(sm.min);
      const uint8_t* bytes = blocks + 16 + 32 * (b / 2);
      const int shift = 4 * (b & 1);
      for (int l = 0; l < 32; ++l)
        out[32 * b + l] = scale * float((bytes[l] >> shift) & 15) - offset;
    }
  }
}

void DecodeQ5_K(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 176) {
    const float d = LoadHalf(blocks), dmin = LoadHalf(blocks + 2);
    const uint8_t* high = blocks + 16;
    for (int b = 0; b < 8; ++b) {
      const ScaleMin sm = LoadScaleMin(blocks + 4, b);
      const float scale = d * float(sm.scale), offset = dmin * float(sm.min);
      const uint8_t* bytes = blocks + 48 + 32 * (b / 2);
      const int shift = 4 * (b & 1);
      for (int l = 0; l < 32; ++l) {
        const int q = ((bytes[l] >> shift) & 15) + 16 * ((high[l] >> b) & 1);
        out[32 * b + l] = scale * float(q) - offset;
      }
    }
  }
}

void DecodeQ6_K(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 210) {
    const uint8_t *low = blocks, *high = blocks + 128, *scales = blocks + 192;
    const float d = LoadHalf(blocks + 208);
    for (int s = 0; s < 16; ++s) {
      const int half = s / 8, j = (s / 2) & 3, l0 = 16 * (s & 1);
      const float scale = d * float(int8_t(scales[s]));
      const uint8_t *lo = low + 64 * half + 32 * (j & 1) + l0, *hi = high + 32 * half + l0;
      const int lo_shift = 4 * (j >> 1), hi_shift = 2 * j;
      for (int l = 0; l < 16; ++l) {
        const int q = (((lo[l] >> lo_shift) & 15) | ((hi[l] >> hi_shift) & 3) << 4) - 32;
        out[16 * s + l] = scale * float(q);
      }
    }
  }
}

}  // namespace sluice::quant
