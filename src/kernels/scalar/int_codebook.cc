#include "kernels/scalar/int_codebook.h"

#include "quant/codebooks.h"

namespace sluice::scalar {

#ifdef SLUICE_CODEBOOKS

namespace {

uint32_t U16(const uint8_t* p) { return static_cast<uint32_t>(p[0] | p[1] << 8); }
uint32_t U32(const uint8_t* p) { return U16(p) | U16(p + 2) << 16; }
int Nibble(const uint8_t* bytes, int i) { return (bytes[i / 2] >> (4 * (i & 1))) & 15; }
int16_t Odd(uint32_t step) { return static_cast<int16_t>(2 * step + 1); }

// Bit j of `signs` negates element j.
template <int N>
void Signed(const int8_t (&entry)[N], uint32_t signs, int8_t* q) {
  for (int j = 0; j < N; ++j) q[j] = static_cast<int8_t>((signs >> j) & 1 ? -entry[j] : entry[j]);
}

void Shifted(uint32_t index, bool negative, int8_t* q) {
  for (int j = 0; j < 8; ++j) {
    q[j] = static_cast<int8_t>(8 * quant::kGridIq1[index][j] + (negative ? -1 : 1));
  }
}

void ReadIq2Xxs(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b))) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* group = b + 2 + 8 * g;
    const uint32_t bits = U32(group + 4);
    out->s[2 * g] = out->s[2 * g + 1] = Odd(bits >> 28);
    for (int k = 0; k < 4; ++k) {
      Signed(quant::kGridIq2Xxs[group[k]], quant::EvenSigns((bits >> (7 * k)) & 127),
             out->q + 32 * g + 8 * k);
    }
  }
}

void ReadIq2Xs(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b))) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bits = U16(b + 2 + 2 * i);
    out->s[i / 2] = Odd(uint32_t(Nibble(b + 66, i / 2)));
    Signed(quant::kGridIq2Xs[bits & 511], quant::EvenSigns(bits >> 9), out->q + 8 * i);
  }
}

void ReadIq2S(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b))) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const int index = b[2 + i] | ((b[66 + i / 4] >> (2 * (i & 3))) & 3) << 8;
    out->s[i / 2] = Odd(uint32_t(Nibble(b + 74, i / 2)));
    Signed(quant::kGridIq2S[index], b[34 + i], out->q + 8 * i);
  }
}

void ReadIq3Xxs(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b))) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t bits = U32(b + 66 + 4 * g);
    out->s[2 * g] = out->s[2 * g + 1] = Odd(bits >> 28);
    for (int k = 0; k < 8; ++k) {
      const uint32_t signs = quant::EvenSigns((bits >> (7 * (k / 2))) & 127) >> (4 * (k & 1));
      Signed(quant::kGridIq3Xxs[b[2 + 8 * g + k]], signs, out->q + 32 * g + 4 * k);
    }
  }
}

void ReadIq3S(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b)));
  for (int i = 0; i < 64; ++i) {
    const int index = b[2 + i] | ((b[66 + i / 8] >> (i & 7)) & 1) << 8;
    out->s[i / 4] = Odd(uint32_t(Nibble(b + 106, i / 8)));
    Signed(quant::kGridIq3S[index], uint32_t{b[74 + i / 2]} >> (4 * (i & 1)), out->q + 4 * i);
  }
}

void ReadIq1S(const uint8_t* b, IntBlock* out) {
  out->d = HalfToFloat(static_cast<uint16_t>(U16(b))) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bits = U16(b + 34 + 2 * (i / 4));
    out->s[i / 2] = Odd((bits >> 12) & 7);
    Shifted(b[2 + i] | ((bits >> (3 * (i & 3))) & 7) << 8, bits & 0x8000, out->q + 8 * i);
  }
}

void ReadIq1M(const uint8_t* b, IntBlock* out) {
  const uint8_t* scales = b + 48;
  uint32_t half = 0;
  for (int k = 0; k < 4; ++k) half |= U16(scales + 2 * k) >> 12 << (4 * k);
  out->d = HalfToFloat(static_cast<uint16_t>(half)) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const uint32_t high = uint32_t(Nibble(b + 32, i));
    const int g = i / 2;
    out->s[g] = Odd((U16(scales + 2 * (g / 4)) >> (3 * (g & 3))) & 7);
    Shifted(b[i] | (high & 7) << 8, high & 8, out->q + 8 * i);
  }
}

}  // namespace

bool HasCodebook(WeightType type) {
  switch (type) {
    case WeightType::kIQ1_S:
    case WeightType::kIQ1_M:
    case WeightType::kIQ2_XXS:
    case WeightType::kIQ2_XS:
    case WeightType::kIQ2_S:
    case WeightType::kIQ3_XXS:
    case WeightType::kIQ3_S:
      return true;
    default:
      return false;
  }
}

void ReadCodebook(WeightType type, const uint8_t* block, IntBlock* out) {
  for (int16_t& n : out->n) n = 0;
  switch (type) {
    case WeightType::kIQ1_S:
      return ReadIq1S(block, out);
    case WeightType::kIQ1_M:
      return ReadIq1M(block, out);
    case WeightType::kIQ2_XXS:
      return ReadIq2Xxs(block, out);
    case WeightType::kIQ2_XS:
      return ReadIq2Xs(block, out);
    case WeightType::kIQ2_S:
      return ReadIq2S(block, out);
    case WeightType::kIQ3_XXS:
      return ReadIq3Xxs(block, out);
    default:
      return ReadIq3S(block, out);
  }
}

#else

bool HasCodebook(WeightType) { return false; }
void ReadCodebook(WeightType, const uint8_t*, IntBlock*) {}

#endif  // SLUICE_CODEBOOKS

}  // namespace sluice::scalar
