// How AVX2 reads the 32-element weight types.
//
// Contract: each type gives
//   kBytes           bytes of a block
//   kAcc             maddubs results (pairs of products) that fit one int16 lane; 1 for signed
//   quants kSigned          quants are int8; otherwise uint8, and the value of quant q is q -
//   kOffset kMin             a second scale multiplies the sum of the activations Quants(block) the
//   32 quants in element order Scale / Min      the scales of eight blocks of eight rows, one per
//   lane
// Only the block's own bytes are read. See scalar/int_block.h for what is computed.
#pragma once

#include "kernels/avx2/simd.h"

namespace sluice {
namespace {

// Four 16-bit words `stride` bytes apart. (Built in general registers: the vector pipes are the
// bottleneck.)
inline uint64_t Words4(const uint8_t* p, uint64_t stride) {
  const uint64_t low = LoadU16(p) | uint32_t{LoadU16(p + stride)} << 16;
  const uint64_t high = LoadU16(p + 2 * stride) | uint32_t{LoadU16(p + 3 * stride)} << 16;
  return low | high << 32;
}

// Eight halves `stride` bytes apart.
inline __m256 Halves8(const uint8_t* p, uint64_t stride) {
  return _mm256_cvtph_ps(_mm_set_epi64x(static_cast<int64_t>(Words4(p + 4 * stride, stride)),
                                        static_cast<int64_t>(Words4(p, stride))));
}

// Bit j of a 32-bit word to byte j: 16 where set, else 0.
inline __m256i FifthBits(const uint8_t* p) {
  const __m256i pick = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                        2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201ull));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(LoadI32(p)), pick);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

struct TypeQ4_0 {
  static constexpr uint32_t kBytes = 18;
  static constexpr int kAcc = 8, kOffset = 8;
  static constexpr bool kSigned = false, kMin = false;
  static __m256i Quants(const uint8_t* b) { return SpreadNibbles(b + 2); }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
};

struct TypeQ4_1 {
  static constexpr uint32_t kBytes = 20;
  static constexpr int kAcc = 8, kOffset = 0;
  static constexpr bool kSigned = false, kMin = true;
  static __m256i Quants(const uint8_t* b) { return SpreadNibbles(b + 4); }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
  static __m256 Min(const uint8_t* b, uint64_t stride) { return Halves8(b + 2, stride); }
};

struct TypeQ5_0 {
  static constexpr uint32_t kBytes = 22;
  static constexpr int kAcc = 4, kOffset = 16;
  static constexpr bool kSigned = false, kMin = false;
  static __m256i Quants(const uint8_t* b) {
    return _mm256_or_si256(SpreadNibbles(b + 6), FifthBits(b + 2));
  }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
};

struct TypeQ5_1 {
  static constexpr uint32_t kBytes = 24;
  static constexpr int kAcc = 4, kOffset = 0;
  static constexpr bool kSigned = false, kMin = true;
  static __m256i Quants(const uint8_t* b) {
    return _mm256_or_si256(SpreadNibbles(b + 8), FifthBits(b + 4));
  }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
  static __m256 Min(const uint8_t* b, uint64_t stride) { return Halves8(b + 2, stride); }
};

struct TypeQ8_0 {
  static constexpr uint32_t kBytes = 34;
  static constexpr int kAcc = 1, kOffset = 0;
  static constexpr bool kSigned = true, kMin = false;
  static __m256i Quants(const uint8_t* b) { return Load256(b + 2); }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
};

inline __m256i Iq4Table() {
  return BothLanes(
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
}

struct TypeIQ4_NL {
  static constexpr uint32_t kBytes = 18;
  static constexpr int kAcc = 1, kOffset = 0;
  static constexpr bool kSigned = true, kMin = false;
  static __m256i Quants(const uint8_t* b) {
    return _mm256_shuffle_epi8(Iq4Table(), SpreadNibbles(b + 2));
  }
  static __m256 Scale(const uint8_t* b, uint64_t stride) { return Halves8(b, stride); }
};

struct TypeMXFP4 {
  static constexpr uint32_t kBytes = 17;
  static constexpr int kAcc = 4, kOffset = 12;  // the doubled E2M1 values plus 12: 0..24
  static constexpr bool kSigned = false, kMin = false;
  static __m256i Quants(const uint8_t* b) {
    const __m256i table =
        BothLanes(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm256_shuffle_epi8(table, SpreadNibbles(b + 1));
  }
  // 2^(e - 128): the float with exponent field e - 1, or a subnormal for e = 0 and 1.
  static __m256 Scale(const uint8_t* b, uint64_t stride) {
    uint64_t bytes = 0;
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) bytes |= uint64_t{b[r * stride]} << (8 * r);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one)));
  }
};

}  // namespace
}  // namespace sluice
