// Codebook types: an index names a vector of 4 or 8 values, signs and scales are stored apart.
#ifdef SLUICE_CODEBOOKS

#include "quant/codebooks.h"
#include "quant/codecs.h"

namespace sluice::quant {

namespace {

constexpr float kIq1Delta = 0.125f;

// N elements of one grid entry; bit j of `signs` negates element j.
template <int N>
void DecodeEntry(const int8_t (&entry)[N], uint32_t signs, float scale, float* out) {
  for (int j = 0; j < N; ++j) {
    const float value = scale * float(entry[j]);
    out[j] = (signs >> j) & 1 ? -value : value;
  }
}

// IQ1: every element of the entry is shifted by the same eighth.
void DecodeShifted(uint32_t index, bool negative, float scale, float* out) {
  const float delta = negative ? -kIq1Delta : kIq1Delta;
  for (int j = 0; j < 8; ++j) out[j] = scale * (float(kGridIq1[index][j]) + delta);
}

int Nibble(const uint8_t* bytes, int i) { return (bytes[i / 2] >> (4 * (i & 1))) & 15; }

}  // namespace

// Per 32 elements: four index bytes, then 4 x 7 sign bits and 4 bits of scale.
void DecodeIQ2_XXS(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 66) {
    const float d = LoadHalf(blocks);
    for (int b = 0; b < 8; ++b) {
      const uint8_t* group = blocks + 2 + 8 * b;
      const uint32_t bits = LoadU32(group + 4);
      const float scale = d * (0.5f + float(bits >> 28)) * 0.25f;
      for (int k = 0; k < 4; ++k) {
        DecodeEntry(kGridIq2Xxs[group[k]], EvenSigns((bits >> (7 * k)) & 127), scale,
                    out + 32 * b + 8 * k);
      }
    }
  }
}

// Per 8 elements: 9 bits of index, 7 of signs; per 16 a 4-bit scale.
void DecodeIQ2_XS(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 74) {
    const float d = LoadHalf(blocks);
    for (int g = 0; g < 32; ++g) {
      const uint32_t bits = LoadU16(blocks + 2 + 2 * g);
      const float scale = d * (0.5f + float(Nibble(blocks + 66, g / 2))) * 0.25f;
      DecodeEntry(kGridIq2Xs[bits & 511], EvenSigns(bits >> 9), scale, out + 8 * g);
    }
  }
}

// qs[32] low index bytes, signs[32], qh[8] two high bits per group, scales[8] nibbles per 16
// elements.
void DecodeIQ2_S(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 82) {
    const float d = LoadHalf(blocks);
    const uint8_t *qs = blocks + 2, *signs = blocks + 34, *qh = blocks + 66, *scales = blocks + 74;
    for (int g = 0; g < 32; ++g) {
      const int index = qs[g] | ((qh[g / 4] >> (2 * (g & 3))) & 3) << 8;
      const float scale = d * (0.5f + float(Nibble(scales, g / 2))) * 0.25f;
      DecodeEntry(kGridIq2S[index], signs[g], scale, out + 8 * g);
    }
  }
}

// qs[64] indices of 4 elements; then per 32 elements 4 x 7 sign bits (8 elements each) and 4 bits
// of scale.
void DecodeIQ3_XXS(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 98) {
    const float d = LoadHalf(blocks);
    const uint8_t* qs = blocks + 2;
    for (int b = 0; b < 8; ++b) {
      const uint32_t bits = LoadU32(blocks + 66 + 4 * b);
      const float scale = d * (0.5f + float(bits >> 28)) * 0.5f;
      for (int k = 0; k < 8; ++k) {
        const uint32_t signs = EvenSigns((bits >> (7 * (k / 2))) & 127) >> (4 * (k & 1));
        DecodeEntry(kGridIq3Xxs[qs[8 * b + k]], signs, scale, out + 32 * b + 4 * k);
      }
    }
  }
}

// qs[64] low index bytes, qh[8] one high bit each, signs[32], scales[4] nibbles per 32 elements.
void DecodeIQ3_S(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 110) {
    const float d = LoadHalf(blocks);
    const uint8_t *qs = blocks + 2, *qh = blocks + 66, *signs = blocks + 74, *scales = blocks + 106;
    for (int g = 0; g < 64; ++g) {
      const int index = qs[g] | ((qh[g / 8] >> (g & 7)) & 1) << 8;
      const float scale = d * float(1 + 2 * Nibble(scales, g / 8));
      DecodeEntry(kGridIq3S[index], uint32_t{signs[g / 2]} >> (4 * (g & 1)), scale, out + 4 * g);
    }
  }
}

// qs[32] low index bytes; per 32 elements a u16: 4 x 3 high index bits, 3 bits of scale, the sign
// of delta.
void DecodeIQ1_S(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 50) {
    const float d = LoadHalf(blocks);
    for (int g = 0; g < 32; ++g) {
      const uint32_t bits = LoadU16(blocks + 34 + 2 * (g / 4));
      const uint32_t index = blocks[2 + g] | ((bits >> (3 * (g & 3))) & 7) << 8;
      DecodeShifted(index, bits & 0x8000, d * float(2 * ((bits >> 12) & 7) + 1), out + 8 * g);
    }
  }
}

// qs[32] low index bytes, qh[16] nibbles (3 high bits, the sign of delta), u16 scales[4]: 3 bits
// per 16 elements, and in their top nibbles the four quarters of the half-precision scale.
void DecodeIQ1_M(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSuperBlock, blocks += 56) {
    const uint8_t *qh = blocks + 32, *scales = blocks + 48;
    uint32_t half = 0;
    for (int k = 0; k < 4; ++k) half |= uint32_t{LoadU16(scales + 2 * k)} >> 12 << (4 * k);
    const float d = HalfToFloat(uint16_t(half));
    for (int g = 0; g < 32; ++g) {
      const uint32_t high = uint32_t(Nibble(qh, g)), index = blocks[g] | (high & 7) << 8;
      const int s = g / 2;
      const uint32_t step = (uint32_t{LoadU16(scales + 2 * (s / 4))} >> (3 * (s & 3))) & 7;
      DecodeShifted(index, high & 8, d * float(2 * step + 1), out + 8 * g);
    }
  }
}

}  // namespace sluice::quant

#endif  // SLUICE_CODEBOOKS
