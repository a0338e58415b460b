// Grids of the codebook types IQ1, IQ2, IQ3: entry i is the vector that index i stands for.
//
// Contract: constant data, 33 KB, generated at build time (cmake/codebooks.cmake). Where the
// generator had no source the types do not decode (InfoOf(type).decodes is false) and these names
// are not defined: refer to them only under SLUICE_CODEBOOKS, which the quant and the kernels room
// are built with. Signs of IQ2 and IQ3 entries are stored beside the index.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::quant {

extern const int8_t kGridIq1[2048][8];    // -1, 0, 1: IQ1_S, IQ1_M
extern const int8_t kGridIq2Xxs[256][8];  // 8, 25, 43
extern const int8_t kGridIq2Xs[512][8];   // 8, 25, 43
extern const int8_t kGridIq2S[1024][8];   // 8, 25, 43
extern const int8_t kGridIq3Xxs[256][4];  // 4, 12, ..., 52, 62
extern const int8_t kGridIq3S[512][4];    // 1, 3, ..., 15

// Seven stored sign bits stand for eight: the number of minus signs is even.
inline uint32_t EvenSigns(uint32_t seven) {
  return seven | (uint32_t(std::popcount(seven)) & 1) << 7;
}

}  // namespace sluice::quant
