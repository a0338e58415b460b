// The search behind the K-quant and IQ4 encoders: integer levels and two tiers of scales that
// minimise the weighted squared error of one super-block. Private to this room.
//
// Contract: pure, no allocation; x and w hold whole blocks, x is finite and at most kSearchMax in
// magnitude, w is non-negative and at most 1 (PrepareWeights sees to both). Sums run over four
// fixed lanes, so results are the same on every machine. Method: per sub-block a sweep over trial
// scales, each closed by the least- squares scale (and offset) for the levels it rounds to; then
// the super-scale in half precision; then in turns the integer scales' neighbours and the
// super-scale's least-squares value, keeping what lowers the error.
#pragma once

#include <cstdint>

namespace sluice::quant {

inline constexpr float kSearchMax = 1e9f;  // above any value whose scale fits a half
inline constexpr float kSearchMin =
    0x1p-25f;  // below half the smallest decodable magnitude: a zero block

// Evenly spaced levels low..high, or the 16 values of the IQ4 table.
struct Levels {
  float low, high;
  bool iq4 = false;
};

// x ~ (d * scale[s]) * level
struct SymmetricFit {
  uint16_t d;  // half bits
  int scale[16];
  float level[256];
};

// x ~ (d * scale[s]) * level - (dmin * min[s])
struct AffineFit {
  uint16_t d, dmin;  // half bits
  int scale[16], min[16];
  float level[256];
};

// What a type fixes. Sub-blocks have 256 / subs elements.
struct SymmetricShape {
  int subs;
  Levels levels;
  int scale_min, scale_max;
};
struct AffineShape {
  int subs;
  float level_max;
  int scale_max;
};

// Weights of one block: the importances scaled to at most 1, or ones when there are none or no
// positive one.
void PrepareWeights(const float* importance, int n, float* w);

// False when x is out of range or the super-scale does not fit a half.
bool FitSymmetric(const SymmetricShape& shape, const float* x, const float* w, SymmetricFit* fit);
bool FitAffine(const AffineShape& shape, const float* x, const float* w, AffineFit* fit);

// One block of 32 under one half-precision scale (IQ4_NL): x ~ d * level.
bool FitIq4Block(const float* x, const float* w, uint16_t* d, float* level);

}  // namespace sluice::quant
