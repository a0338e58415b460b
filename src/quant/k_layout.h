// Packed integer scales of the K-quants, shared by decoders and encoders. Private to this room.
//
// Contract: pure. `scales` points at the 12 packed bytes of one block (Q4_K, Q5_K: 8 pairs of 6-bit
// scale and minimum; Q3_K: 16 signed 6-bit scales). Stores go into bytes that were zero before.
#pragma once

#include <cstdint>

namespace sluice::quant {

struct ScaleMin {
  int scale, min;  // 0..63
};

inline ScaleMin LoadScaleMin(const uint8_t* scales, int b) {
  if (b < 4) return {scales[b] & 63, scales[b + 4] & 63};
  return {(scales[b + 4] & 15) | (scales[b - 4] >> 6) << 4, (scales[b + 4] >> 4) | (scales[b] >> 6)
                                                                                       << 4};
}

inline void StoreScaleMin(uint8_t* scales, int b, ScaleMin v) {
  if (b < 4) {
    scales[b] |= uint8_t(v.scale);
    scales[b + 4] |= uint8_t(v.min);
    return;
  }
  scales[b + 4] |= uint8_t((v.scale & 15) | (v.min & 15) << 4);
  scales[b - 4] |= uint8_t((v.scale >> 4) << 6);
  scales[b] |= uint8_t((v.min >> 4) << 6);
}

inline int LoadQ3Scale(const uint8_t* scales, int s) {
  const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
  const int high = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
  return (low | high << 4) - 32;
}

inline void StoreQ3Scale(uint8_t* scales, int s, int value) {
  const int biased = value + 32;
  scales[s % 8] |= uint8_t((biased & 15) << (s < 8 ? 0 : 4));
  scales[8 + s % 4] |= uint8_t((biased >> 4) << (2 * (s / 4)));
}

}  // namespace sluice::quant
