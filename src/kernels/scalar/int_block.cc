#include "kernels/scalar/int_block.h"

#include <bit>
#include <cstring>

#include "kernels/scalar/int_codebook.h"

namespace sluice::scalar {
namespace {

uint16_t U16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
float Half(const uint8_t* p) { return HalfToFloat(U16(p)); }

constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 doubled, so that all values are integers.
constexpr int8_t kFp4Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void Ones(IntBlock* out, int groups) {
  for (int g = 0; g < groups; ++g) out->s[g] = out->n[g] = 1;
}

// 16 bytes of nibbles: low ones are elements 0..15, high ones 16..31.
void Nibbles(const uint8_t* qs, int offset, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<int8_t>((qs[j] & 15) - offset);
    q[j + 16] = static_cast<int8_t>((qs[j] >> 4) - offset);
  }
}

void TableNibbles(const uint8_t* qs, const int8_t* table, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = table[qs[j] & 15];
    q[j + 16] = table[qs[j] >> 4];
  }
}

void FifthBits(const uint8_t* qh, int8_t* q) {
  for (int j = 0; j < 32; ++j) {
    q[j] = static_cast<int8_t>(q[j] + (((qh[j / 8] >> (j % 8)) & 1) << 4));
  }
}

// 2^(e - 128), with the float32 subnormals that e = 0 and 1 stand for.
float Fp4Scale(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t{e} - 1) << 23;
  return std::bit_cast<float>(bits);
}

void ReadLegacy(WeightType type, const uint8_t* b, IntBlock* out) {
  Ones(out, 2);
  out->has_min = false;
  out->m = 0;
  if (type != WeightType::kMXFP4) out->d = Half(b);
  switch (type) {
    case WeightType::kQ4_0:
      return Nibbles(b + 2, 8, out->q);
    case WeightType::kQ4_1:
      out->m = Half(b + 2);
      out->has_min = true;
      return Nibbles(b + 4, 0, out->q);
    case WeightType::kQ5_0:
      Nibbles(b + 6, 16, out->q);
      return FifthBits(b + 2, out->q);
    case WeightType::kQ5_1:
      out->m = Half(b + 2);
      out->has_min = true;
      Nibbles(b + 8, 0, out->q);
      return FifthBits(b + 4, out->q);
    case WeightType::kQ8_0:
      std::memcpy(out->q, b + 2, 32);
      return;
    case WeightType::kIQ4_NL:
      return TableNibbles(b + 2, kIq4Table, out->q);
    default:  // kMXFP4
      out->d = Fp4Scale(b[0]);
      return TableNibbles(b + 1, kFp4Table, out->q);
  }
}

void ReadQ2K(const uint8_t* b, IntBlock* out) {
  for (int g = 0; g < 16; ++g) {
    out->s[g] = b[g] & 15;
    out->n[g] = b[g] >> 4;
  }
  for (int i = 0; i < 256; ++i) {
    out->q[i] = (b[16 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3;
  }
  out->d = Half(b + 80);
  out->m = -Half(b + 82);
  out->has_min = true;
}

void ReadQ3K(const uint8_t* b, IntBlock* out) {
  const uint8_t* sc = b + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4;
    const int high = (sc[8 + g % 4] >> (2 * (g / 4))) & 3;
    out->s[g] = static_cast<int16_t>((low | high << 4) - 32);
    out->n[g] = 0;
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i / 32 % 4, l = i % 32;
    const int low = (b[32 + 32 * half + l] >> (2 * j)) & 3;
    const int high = (b[l] >> (4 * half + j)) & 1;
    out->q[i] = static_cast<int8_t>(low - (high ? 0 : 4));
  }
  out->d = Half(b + 108);
}

// The packed 6-bit scales and mins of Q4_K and Q5_K, one per 32 elements.
void ReadScalesMins(const uint8_t* sc, IntBlock* out) {
  for (int g = 0; g < 16; ++g) {
    const int b = g / 2;
    if (b < 4) {
      out->s[g] = sc[b] & 63;
      out->n[g] = sc[b + 4] & 63;
    } else {
      out->s[g] = static_cast<int16_t>((sc[b + 4] & 15) | (sc[b - 4] >> 6) << 4);
      out->n[g] = static_cast<int16_t>((sc[b + 4] >> 4) | (sc[b] >> 6) << 4);
    }
  }
}

void ReadQ45K(const uint8_t* b, bool five, IntBlock* out) {
  out->d = Half(b);
  out->m = -Half(b + 2);
  out->has_min = true;
  ReadScalesMins(b + 4, out);
  const uint8_t* qs = b + (five ? 48 : 16);
  for (int i = 0; i < 256; ++i) {
    const int g = i / 32, l = i % 32;
    const uint8_t byte = qs[32 * (g / 2) + l];
    int q = g % 2 == 0 ? byte & 15 : byte >> 4;
    if (five) q += ((b[16 + l] >> g) & 1) << 4;
    out->q[i] = static_cast<int8_t>(q);
  }
}

void ReadQ6K(const uint8_t* b, IntBlock* out) {
  for (int g = 0; g < 16; ++g) {
    out->s[g] = static_cast<int8_t>(b[192 + g]);
    out->n[g] = 0;
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i / 32 % 4, l = i % 32;
    const uint8_t byte = b[64 * half + 32 * (j & 1) + l];
    const int low = j >= 2 ? byte >> 4 : byte & 15;
    const int high = (b[128 + 32 * half + l] >> (2 * j)) & 3;
    out->q[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  out->d = Half(b + 208);
}

void ReadIq4Xs(const uint8_t* b, IntBlock* out) {
  out->d = Half(b);
  const uint16_t high = U16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int low = (b[4 + g / 2] >> (4 * (g & 1))) & 15;
    const auto s = static_cast<int16_t>((low | ((high >> (2 * g)) & 3) << 4) - 32);
    out->s[2 * g] = out->s[2 * g + 1] = s;
    TableNibbles(b + 8 + 16 * g, kIq4Table, out->q + 32 * g);
  }
}

int8_t Trit(uint8_t byte, int digit) {
  constexpr uint8_t kPow3[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPow3[digit]);
  return static_cast<int8_t>((shifted * 3 >> 8) - 1);
}

void ReadTq1(const uint8_t* b, IntBlock* out) {
  Ones(out, 16);
  int8_t* q = out->q;
  for (int k = 0; k < 5; ++k) {
    for (int j = 0; j < 32; ++j) *q++ = Trit(b[j], k);
  }
  for (int k = 0; k < 5; ++k) {
    for (int j = 0; j < 16; ++j) *q++ = Trit(b[32 + j], k);
  }
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 4; ++j) *q++ = Trit(b[48 + j], k);
  }
  out->d = Half(b + 52);
}

void ReadTq2(const uint8_t* b, IntBlock* out) {
  Ones(out, 16);
  for (int i = 0; i < 256; ++i) {
    const int shift = 2 * (i / 32 % 4);
    out->q[i] = static_cast<int8_t>(((b[32 * (i / 128) + i % 32] >> shift) & 3) - 1);
  }
  out->d = Half(b + 64);
}

}  // namespace

bool HasIntPath(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ8_0:
    case WeightType::kIQ4_NL:
    case WeightType::kMXFP4:
    case WeightType::kQ2_K:
    case WeightType::kQ3_K:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
    case WeightType::kIQ4_XS:
    case WeightType::kTQ1_0:
    case WeightType::kTQ2_0:
      return true;
    default:
      return HasCodebook(type);
  }
}

void ReadIntBlock(WeightType type, const uint8_t* block, IntBlock* out) {
  out->has_min = false;
  out->m = 0;
  if (HasCodebook(type)) return ReadCodebook(type, block, out);
  switch (type) {
    case WeightType::kQ2_K:
      return ReadQ2K(block, out);
    case WeightType::kQ3_K:
      return ReadQ3K(block, out);
    case WeightType::kQ4_K:
      return ReadQ45K(block, false, out);
    case WeightType::kQ5_K:
      return ReadQ45K(block, true, out);
    case WeightType::kQ6_K:
      return ReadQ6K(block, out);
    case WeightType::kIQ4_XS:
      return ReadIq4Xs(block, out);
    case WeightType::kTQ1_0:
      return ReadTq1(block, out);
    case WeightType::kTQ2_0:
      return ReadTq2(block, out);
    default:
      return ReadLegacy(type, block, out);
  }
}

}  // namespace sluice::scalar
