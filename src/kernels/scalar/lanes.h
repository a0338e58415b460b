// Float sums over eight lanes: the order shared by every float dot product of the scalar leaves.
//
// Contract: element i goes to lane i % 8; callers that continue a sum do so at a multiple of 8.
// Included by scalar translation units only.
#pragma once

#include <cstdint>

namespace sluice::scalar {

inline void DotLanes(const float* a, const float* b, uint32_t n, float* lanes) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  for (uint32_t j = 0; i + j < n; ++j) lanes[j] += a[i + j] * b[i + j];
}

inline float FoldLanes(const float* l) {
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

}  // namespace sluice::scalar
