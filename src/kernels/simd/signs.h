// The signs of the codebook types as factors.
//
// Contract: constant data, made by the compiler. Unnamed namespace: see tiles.h.
#pragma once

#include <cstdint>

namespace sluice {
namespace {

// Seven sign bits as eight bytes of 1 or -1; the number of minus signs is even.
struct SignTable {
  uint64_t bytes[128] = {};
  constexpr SignTable() {
    for (uint32_t i = 0; i < 128; ++i) {
      uint32_t minus = 0;
      for (int j = 0; j < 7; ++j) minus += (i >> j) & 1;
      const uint32_t signs = i | (minus & 1) << 7;
      for (int j = 0; j < 8; ++j) bytes[i] |= ((signs >> j) & 1 ? 0xffull : 1ull) << (8 * j);
    }
  }
};
alignas(64) constexpr SignTable kSignTable;

}  // namespace
}  // namespace sluice
