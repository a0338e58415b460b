// Plain floats and the types with one scale per 32 elements.
#include "quant/codecs.h"

namespace sluice::quant {

void DecodeF32(const uint8_t* blocks, float* out, uint64_t n) {
  std::memcpy(out, blocks, n * sizeof(float));
}

void DecodeF16(const uint8_t* blocks, float* out, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    // Stored as bits: a signalling NaN must not pass through an FPU register.
    const uint32_t bits = std::bit_cast<uint32_t>(HalfToFloat(LoadU16(blocks + 2 * i)));
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

void DecodeBF16(const uint8_t* blocks, float* out, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{LoadU16(blocks + 2 * i)} << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

void DecodeQ4_0(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 18) {
    const float d = LoadHalf(blocks);
    for (int j = 0; j < 16; ++j) {
      const int byte = blocks[2 + j];
      out[j] = float((byte & 15) - 8) * d;
      out[j + 16] = float((byte >> 4) - 8) * d;
    }
  }
}

void DecodeQ4_1(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 20) {
    const float d = LoadHalf(blocks), m = LoadHalf(blocks + 2);
    for (int j = 0; j < 16; ++j) {
      const int byte = blocks[4 + j];
      out[j] = float(byte & 15) * d + m;
      out[j + 16] = float(byte >> 4) * d + m;
    }
  }
}

void DecodeQ5_0(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 22) {
    const float d = LoadHalf(blocks);
    const uint32_t high = LoadU32(blocks + 2);
    for (int j = 0; j < 16; ++j) {
      const uint32_t byte = blocks[6 + j];
      out[j] = float(int((byte & 15) | ((high >> j) & 1) << 4) - 16) * d;
      out[j + 16] = float(int((byte >> 4) | ((high >> (j + 16)) & 1) << 4) - 16) * d;
    }
  }
}

void DecodeQ5_1(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 24) {
    const float d = LoadHalf(blocks), m = LoadHalf(blocks + 2);
    const uint32_t high = LoadU32(blocks + 4);
    for (int j = 0; j < 16; ++j) {
      const uint32_t byte = blocks[8 + j];
      out[j] = float(int((byte & 15) | ((high >> j) & 1) << 4)) * d + m;
      out[j + 16] = float(int((byte >> 4) | ((high >> (j + 16)) & 1) << 4)) * d + m;
    }
  }
}

void DecodeQ8_0(const uint8_t* blocks, float* out, uint64_t n) {
  for (const float* end = out + n; out != end; out += kSmallBlock, blocks += 34) {
    const float d = LoadHalf(blocks);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = float(int8_t(blocks[2 + j])) * d;
  }
}

}  // namespace sluice::quant
