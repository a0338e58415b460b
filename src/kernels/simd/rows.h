// Rows of floats in each stored form, as vectors; and what a vector type is.
//
// Contract: a vector type V (avx2/floats.h, avx512/floats.h, neon/floats.h) gives
//   Vec kLanes kRegisters      kRegisters: how many of them the processor holds
//   kTokens                    tokens of a float product's register tile of four rows
//   Zero Same(float) Load Store
//   Add Sub Mul Div            Fma(a, b, c) = a b + c, Fnma(a, b, c) = c - a b, rounded once
//   Min Max(a, b)              NaN in b passes; MaxNumber(a, b): NaN in a gives b
//   Round Pow2(n)              nearest even; 2^n of a whole n
//   ZeroBelow(v, x, least)     v, but 0 where x < least
//   First(v) Sum(v) Largest(v) Sum in the order of scalar/lanes.h (16 lanes: i and i + 8 first)
//   F32(p) F16(p) Bf16(p)      kLanes values as they lie at p, any alignment
//   I8(p) U4(p, high)          likewise: bytes, the low or high nibbles of bytes
//   SameF16(p)                 a half in all lanes
// A row class gives At(row, i): elements i .. i + kLanes - 1, i a multiple of kLanes. Unnamed
// namespace: see tiles.h.
#pragma once

#include "kernels/kv_row.h"

namespace sluice {
namespace {

template <class V>
struct RowF32 {
  static constexpr uint32_t kBytes = 4;
  static typename V::Vec At(const uint8_t* row, uint32_t i) {
    return V::F32(row + 4 * uint64_t{i});
  }
};

template <class V>
struct RowF16 {
  static constexpr uint32_t kBytes = 2;
  static typename V::Vec At(const uint8_t* row, uint32_t i) {
    return V::F16(row + 2 * uint64_t{i});
  }
};

template <class V>
struct RowBf16 {
  static constexpr uint32_t kBytes = 2;
  static typename V::Vec At(const uint8_t* row, uint32_t i) {
    return V::Bf16(row + 2 * uint64_t{i});
  }
};

template <class V>
struct RowQ8 {
  static typename V::Vec At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ8Block);
    return V::Mul(V::SameF16(block), V::I8(block + 2 + i % kKvBlockElems));
  }
};

template <class V>
struct RowQ4 {
  static typename V::Vec At(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kKvBlockElems * sizeof(KvQ4Block);
    const typename V::Vec q = V::U4(block + 4 + i % 16, i % kKvBlockElems >= 16);
    return V::Add(V::SameF16(block + 2), V::Mul(V::SameF16(block), q));
  }
};

}  // namespace
}  // namespace sluice
