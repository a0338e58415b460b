// Layout of one K or V row in each KV format. In memory only; spilled pages keep the same bytes.
//
// Contract: kF32 and kF16 are plain arrays. kQ8 (and K of kK8V4) is a run of KvQ8Block, V of kK8V4
// a run of KvQ4Block, one per 32 elements; a row whose length is no multiple of 32 is padded with
// zeros. Blocks have odd sizes, so fields are read with memcpy.
//   q8: x = scale * q, scale = half(maxabs / 127)
//   q4: x = min + scale * q, q in 0..15, two per byte: element j in the low, j + 16 in the high
//   nibble
#pragma once

#include <cstdint>

namespace sluice {

constexpr uint32_t kKvBlockElems = 32;

struct KvQ8Block {
  uint16_t scale;  // half
  int8_t q[32];
};
static_assert(sizeof(KvQ8Block) == 34);

struct KvQ4Block {
  uint16_t scale;  // half
  uint16_t min;    // half
  uint8_t q[16];
};
static_assert(sizeof(KvQ4Block) == 20);

}  // namespace sluice
