// Four float lanes and the level snapping of the encoder search. Private to search*.cc.
//
// Contract: plain functions over the compiler's vector type; lane order is fixed, so a sum does not
// depend on the instruction set. Rounding is to nearest even by the 1.5 * 2^23 trick (inputs below
// 2^22).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "quant/codecs.h"

namespace sluice::quant {

using V4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));

inline V4 Load4(const float* p) {
  V4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void Store4(float* p, V4 v) { std::memcpy(p, &v, sizeof v); }
inline float Sum4(V4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline V4 Splat(float v) { return V4{v, v, v, v}; }

struct UniformLevels {
  V4 low, high;
  V4 Snap(V4 v) const {
    v = v < low ? low : v;
    v = v > high ? high : v;
    const V4 magic = Splat(12582912.0f);
    return (v + magic) - magic;
  }
};

struct Iq4Levels {
  V4 Snap(V4 v) const {
    V4 level = Splat(kIq4Values[0]);
    for (int k = 1; k < 16; ++k) {  // steps over each midpoint passed; the sums are exact integers
      const V4 midpoint = Splat(0.5f * (kIq4Values[k - 1] + kIq4Values[k]));
      const V4 step = Splat(kIq4Values[k] - kIq4Values[k - 1]);
      level += std::bit_cast<V4>((v > midpoint) & std::bit_cast<I4>(step));
    }
    return level;
  }
};

}  // namespace sluice::quant
