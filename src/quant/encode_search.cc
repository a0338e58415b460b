// K-quant and IQ4 encoders: the search (search.h) finds the numbers, this packs them.
#include "quant/codecs.h"
#include "quant/k_layout.h"
#include "quant/search.h"

namespace sluice::quant {
namespace {

constexpr AffineShape kQ2Shape{16, 3, 15}, kQ4Shape{8, 15, 63}, kQ5Shape{8, 31, 63};
constexpr SymmetricShape kQ3Shape{16, {-4, 3}, -32, 31}, kQ6Shape{16, {-32, 31}, -128, 127};
constexpr SymmetricShape kIq4XsShape{8, {-127, 113, true}, -32, 31};

// Weights of the next block; `ones` serves where there is no importance.
class Weights {
 public:
  Weights(const float* importance, int block) : importance_(importance), block_(block) {
    PrepareWeights(nullptr, block, w_);
  }
  const float* Next() {
    if (importance_ != nullptr) {
      PrepareWeights(importance_, block_, w_);
      importance_ += block_;
    }
    return w_;
  }

 private:
  const float* importance_;
  int block_;
  float w_[kSuperBlock];
};

void StoreScaleMins(const AffineFit& fit, uint8_t* scales) {
  std::memset(scales, 0, 12);
  for (int b = 0; b < 8; ++b) StoreScaleMin(scales, b, {fit.scale[b], fit.min[b]});
}

uint8_t Iq4Index(float level) {
  uint8_t k = 0;
  while (kIq4Values[k] < level) ++k;
  return k;
}

// 32 levels to 16 bytes: low nibbles first, then the high ones.
void StoreIq4(const float* level, uint8_t* bytes) {
  for (int j = 0; j < 16; ++j)
    bytes[j] = uint8_t(Iq4Index(level[j]) | Iq4Index(level[j + 16]) << 4);
}

}  // namespace

SLUICE_ENCODER(Q2_K) {
  Weights weights(importance, kSuperBlock);
  AffineFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 84) {
    if (!FitAffine(kQ2Shape, in, weights.Next(), &fit)) return false;
    for (int s = 0; s < 16; ++s) blocks[s] = uint8_t(fit.scale[s] | fit.min[s] << 4);
    for (int i = 0; i < 64; ++i) {
      const float* q = fit.level + 128 * (i / 32) + i % 32;
      blocks[16 + i] = uint8_t(int(q[0]) | int(q[32]) << 2 | int(q[64]) << 4 | int(q[96]) << 6);
    }
    StoreU16(blocks + 80, fit.d);
    StoreU16(blocks + 82, fit.dmin);
  }
  return true;
}

SLUICE_ENCODER(Q3_K) {
  Weights weights(importance, kSuperBlock);
  SymmetricFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 110) {
    if (!FitSymmetric(kQ3Shape, in, weights.Next(), &fit)) return false;
    std::memset(blocks, 0, 108);
    for (int i = 0; i < kSuperBlock; ++i) {
      const int q = int(fit.level[i]) + 4, half = i / 128, j = (i / 32) & 3, l = i & 31;
      blocks[l] |= uint8_t((q >> 2) << (4 * half + j));
      blocks[32 + 32 * half + l] |= uint8_t((q & 3) << (2 * j));
    }
    for (int s = 0; s < 16; ++s) StoreQ3Scale(blocks + 96, s, fit.scale[s]);
    StoreU16(blocks + 108, fit.d);
  }
  return true;
}

SLUICE_ENCODER(Q4_K) {
  Weights weights(importance, kSuperBlock);
  AffineFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 144) {
    if (!FitAffine(kQ4Shape, in, weights.Next(), &fit)) return false;
    StoreU16(blocks, fit.d);
    StoreU16(blocks + 2, fit.dmin);
    StoreScaleMins(fit, blocks + 4);
    for (int i = 0; i < 128; ++i) {
      const float* q = fit.level + 64 * (i / 32) + i % 32;
      blocks[16 + i] = uint8_t(int(q[0]) | int(q[32]) << 4);
    }
  }
  return true;
}

SLUICE_ENCODER(Q5_K) {
  Weights weights(importance, kSuperBlock);
  AffineFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 176) {
    if (!FitAffine(kQ5Shape, in, weights.Next(), &fit)) return false;
    StoreU16(blocks, fit.d);
    StoreU16(blocks + 2, fit.dmin);
    StoreScaleMins(fit, blocks + 4);
    std::memset(blocks + 16, 0, 32);
    for (int i = 0; i < 128; ++i) {
      const int pair = i / 32, l = i % 32;
      const int low = int(fit.level[64 * pair + l]), high = int(fit.level[64 * pair + 32 + l]);
      blocks[48 + i] = uint8_t((low & 15) | (high & 15) << 4);
      blocks[16 + l] |= uint8_t((low >> 4) << (2 * pair) | (high >> 4) << (2 * pair + 1));
    }
  }
  return true;
}

SLUICE_ENCODER(Q6_K) {
  Weights weights(importance, kSuperBlock);
  SymmetricFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 210) {
    if (!FitSymmetric(kQ6Shape, in, weights.Next(), &fit)) return false;
    for (int half = 0; half < 2; ++half) {
      for (int l = 0; l < 32; ++l) {
        int q[4];
        for (int j = 0; j < 4; ++j) q[j] = int(fit.level[128 * half + 32 * j + l]) + 32;
        blocks[64 * half + l] = uint8_t((q[0] & 15) | (q[2] & 15) << 4);
        blocks[64 * half + 32 + l] = uint8_t((q[1] & 15) | (q[3] & 15) << 4);
        blocks[128 + 32 * half + l] =
            uint8_t(q[0] >> 4 | (q[1] >> 4) << 2 | (q[2] >> 4) << 4 | (q[3] >> 4) << 6);
      }
    }
    for (int s = 0; s < 16; ++s) blocks[192 + s] = uint8_t(int8_t(fit.scale[s]));
    StoreU16(blocks + 208, fit.d);
  }
  return true;
}

SLUICE_ENCODER(IQ4_NL) {
  Weights weights(importance, kSmallBlock);
  float level[kSmallBlock];
  for (const float* end = in + n; in != end; in += kSmallBlock, blocks += 18) {
    uint16_t d;
    if (!FitIq4Block(in, weights.Next(), &d, level)) return false;
    StoreU16(blocks, d);
    StoreIq4(level, blocks + 2);
  }
  return true;
}

SLUICE_ENCODER(IQ4_XS) {
  Weights weights(importance, kSuperBlock);
  SymmetricFit fit;
  for (const float* end = in + n; in != end; in += kSuperBlock, blocks += 136) {
    if (!FitSymmetric(kIq4XsShape, in, weights.Next(), &fit)) return false;
    StoreU16(blocks, fit.d);
    std::memset(blocks + 4, 0, 4);
    uint32_t high = 0;
    for (int b = 0; b < 8; ++b) {
      const uint32_t biased = uint32_t(fit.scale[b] + 32);
      blocks[4 + b / 2] |= uint8_t((biased & 15) << (4 * (b & 1)));
      high |= (biased >> 4) << (2 * b);
      StoreIq4(fit.level + 32 * b, blocks + 8 + 16 * b);
    }
    StoreU16(blocks + 2, uint16_t(high));
  }
  return true;
}

}  // namespace sluice::quant
