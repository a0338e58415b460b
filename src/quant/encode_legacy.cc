// Encoders with one right answer: plain floats and one scale per 32 elements. The float operations
// and their order are part of the answer (x times the reciprocal of the float scale, not of the
// stored half).
#include <algorithm>
#include <cmath>

#include "quant/codecs.h"

namespace sluice::quant {
namespace {

// 1 / d, or 0 where d is so small that it is stored as zero anyway.
float Reciprocal(float d) {
  const float r = d != 0 ? 1.0f / d : 0.0f;
  return std::isfinite(r) ? r : 0.0f;
}

// The element of largest magnitude, the first of equals, with its sign.
float SignedExtreme(const float* x) {
  float extreme = 0;
  for (int i = 0; i < kSmallBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

void StoreNibbles(const uint8_t* q, uint8_t* bytes) {
  for (int j = 0; j < 16; ++j) bytes[j] = uint8_t((q[j] & 15) | (q[j + 16] & 15) << 4);
}

uint32_t FifthBits(const uint8_t* q) {
  uint32_t bits = 0;
  for (int j = 0; j < kSmallBlock; ++j) bits |= uint32_t{q[j]} >> 4 << j;
  return bits;
}

// Symmetric types of 2 * zero levels: the extreme maps to -zero. False when d overflows.
bool QuantizeSymmetric(const float* x, int zero, uint8_t* scale, uint8_t* q) {
  const float d = SignedExtreme(x) / float(-zero);
  if (!StoreHalf(scale, d)) return false;
  const float inverse = Reciprocal(d), offset = float(zero) + 0.5f;
  for (int j = 0; j < kSmallBlock; ++j) {
    q[j] = uint8_t(std::min(2 * zero - 1, int(x[j] * inverse + offset)));
  }
  return true;
}

// Types with scale and minimum: `top` is the largest level. False when either overflows.
bool QuantizeAffine(const float* x, int top, uint8_t* scale, uint8_t* q) {
  // The first of equals on both ends: among zeros of either sign the choice shows in the bytes.
  const float min = *std::min_element(x, x + kSmallBlock);
  const float d = (*std::max_element(x, x + kSmallBlock) - min) / float(top);
  if (!StoreHalf(scale, d) || !StoreHalf(scale + 2, min)) return false;
  const float inverse = Reciprocal(d);
  for (int j = 0; j < kSmallBlock; ++j) {
    q[j] = uint8_t(std::min(top, int((x[j] - min) * inverse + 0.5f)));
  }
  return true;
}

}  // namespace

SLUICE_ENCODER(F32) {
  std::memcpy(blocks, in, n * sizeof(float));
  return true;
}

SLUICE_ENCODER(F16) {
  for (uint64_t i = 0; i < n; ++i) StoreU16(blocks + 2 * i, FloatToHalf(in[i]));
  return true;
}

SLUICE_ENCODER(BF16) {
  for (uint64_t i = 0; i < n; ++i) StoreU16(blocks + 2 * i, FloatToBf16(in[i]));
  return true;
}

SLUICE_ENCODER(Q4_0) {
  uint8_t q[kSmallBlock];
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 18) {
    if (!QuantizeSymmetric(in, 8, blocks, q)) return false;
    StoreNibbles(q, blocks + 2);
  }
  return true;
}

SLUICE_ENCODER(Q4_1) {
  uint8_t q[kSmallBlock];
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 20) {
    if (!QuantizeAffine(in, 15, blocks, q)) return false;
    StoreNibbles(q, blocks + 4);
  }
  return true;
}

SLUICE_ENCODER(Q5_0) {
  uint8_t q[kSmallBlock];
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 22) {
    if (!QuantizeSymmetric(in, 16, blocks, q)) return false;
    StoreU32(blocks + 2, FifthBits(q));
    StoreNibbles(q, blocks + 6);
  }
  return true;
}

SLUICE_ENCODER(Q5_1) {
  uint8_t q[kSmallBlock];
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 24) {
    if (!QuantizeAffine(in, 31, blocks, q)) return false;
    StoreU32(blocks + 4, FifthBits(q));
    StoreNibbles(q, blocks + 8);
  }
  return true;
}

SLUICE_ENCODER(Q8_0) {
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 34) {
    const float d = std::fabs(SignedExtreme(in)) / 127.0f;
    if (!StoreHalf(blocks, d)) return false;
    const float inverse = Reciprocal(d);
    for (int j = 0; j < kSmallBlock; ++j) {
      // Half away from zero, without the library call that keeps the loop scalar.
      const float v = in[j] * inverse;
      const int whole = int(v);
      const float rest = v - float(whole);
      blocks[2 + j] = uint8_t(int8_t(whole + int(rest >= 0.5f) - int(rest <= -0.5f)));
    }
  }
  return true;
}

// The shared exponent puts the largest element into [4, 8) of E2M1's range up to 6; each element
// takes the nearest of the 16 values, the first of equals (so zero is never the negative one).
SLUICE_ENCODER(MXFP4) {
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 17) {
    const float extreme = std::fabs(SignedExtreme(in));
    // The logarithm is rounded to float before the floor: just below 2^k that is already k.
    const float log = extreme > 0 ? float(std::log2(double(extreme))) : -1e3f;
    const uint8_t e = uint8_t(std::clamp(std::floor(log) + 125.0f, 0.0f, 254.0f));
    blocks[0] = e;
    float values[16];
    for (int k = 0; k < 16; ++k) values[k] = kMxfp4Values[k] * Mxfp4Scale(e);
    uint8_t q[kSmallBlock];
    for (int j = 0; j < kSmallBlock; ++j) {
      int best = 0;
      for (int k = 1; k < 16; ++k) {
        if (std::fabs(values[k] - in[j]) < std::fabs(values[best] - in[j])) best = k;
      }
      q[j] = uint8_t(best);
    }
    StoreNibbles(q, blocks + 1);
  }
  return true;
}

}  // namespace sluice::quant
