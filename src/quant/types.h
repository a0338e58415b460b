// Weight types: the meaning of every GGUF block format.
//
// Contract: pure, thread-safe, no allocation. A row of n elements is n / block_elems consecutive
// blocks, little-endian; n must be a multiple of block_elems (callers check with RowBytes). Decode
// evaluates in float32 with the products in the order of the format's definition, so results are
// bit-exact against the reference vectors. Ids are ggml's type ids. Formats: docs/weight-types.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace sluice {

enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

struct WeightTypeInfo {
  WeightType type;
  const char* name;      // as GGUF tools print it: "Q4_K"
  uint32_t block_elems;  // elements per block
  uint32_t block_bytes;
  bool decodes;  // DecodeRow works
};

// nullptr for an id that is unknown or retired.
const WeightTypeInfo* FindWeightType(uint32_t id);
const WeightTypeInfo* FindWeightType(std::string_view name);
const WeightTypeInfo& InfoOf(WeightType type);  // every enumerator has one

// Name for an id that FindWeightType does not know but the field does ("NVFP4", retired ones), else
// "?".
const char* KnownTypeName(uint32_t id);

// Bytes of a row of n elements; nullopt when n is no multiple of the block or the product
// overflows.
std::optional<uint64_t> RowBytes(WeightType type, uint64_t n);

// n elements from blocks to float32; pointers need no alignment. The type must decode
// (InfoOf(type).decodes): for one that does not, asserts, and in release builds fills `out` with
// NaN so that the mistake surfaces. Reads no floating-point mode beyond round-to-nearest;
// subnormals, Inf and NaN follow IEEE 754.
void DecodeRow(WeightType type, const uint8_t* blocks, float* out, uint64_t n);

// Whether EncodeRow has an encoder for the type.
bool Encodes(WeightType type);

// Float32 to blocks. F32, F16 and BF16 take any value. Block types refuse (kFailed, the element is
// named) a NaN or infinity and values whose scale overflows a half; what lies below the smallest
// scale becomes zero. Types with one right answer give llama.cpp's bytes; K-quants and IQ4 are a
// search for the least squared error, weighted by `importance` (n non-negative numbers, for
// instance the mean squared activation per column) when it is not null. The other types ignore it.
// kFailed for types without an encoder or an n off the block.
Status EncodeRow(WeightType type, const float* in, uint8_t* blocks, uint64_t n,
                 const float* importance = nullptr);

// IEEE half and bfloat16, exact; to-half and to-bf16 round to nearest even.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
inline float Bf16ToFloat(uint16_t bits) { return __builtin_bit_cast(float, uint32_t{bits} << 16); }
uint16_t FloatToBf16(float value);

}  // namespace sluice
