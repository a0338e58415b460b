// Small NEON building blocks shared by the translation units of the aarch64 folders.
//
// Contract: everything sits in an unnamed namespace, so no function compiled for a newer processor
// can be merged into common code; for the same reason these units use no inline function of other
// headers.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace sluice {
namespace {

template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

// Calls f(Index<0>) ... f(Index<kCount - 1>): a loop whose counter is a constant expression.
template <int kCount, int kAt = 0, class F>
inline __attribute__((always_inline)) void Unrolled(F f) {
  if constexpr (kAt < kCount) {
    f(Index<kAt>{});
    Unrolled<kCount, kAt + 1>(f);
  }
}

inline int8x16_t Load8(const int8_t* p) { return vld1q_s8(p); }
inline uint8x16_t LoadU8(const uint8_t* p) { return vld1q_u8(p); }
inline int8x16_t AsSigned(uint8x16_t v) { return vreinterpretq_s8_u8(v); }

// Shifts by zero are no instruction.
template <int kBits>
inline uint8x16_t ShiftRight(uint8x16_t v) {
  if constexpr (kBits == 0) {
    return v;
  } else {
    return vshrq_n_u8(v, kBits);
  }
}

// Moves bit kFrom of each byte to bit kTo and clears the others.
template <int kFrom, int kTo>
inline uint8x16_t MoveBit(uint8x16_t v) {
  uint8x16_t moved = v;
  if constexpr (kFrom > kTo) moved = vshrq_n_u8(v, kFrom - kTo);
  if constexpr (kFrom < kTo) moved = vshlq_n_u8(v, kTo - kFrom);
  return vandq_u8(moved, vdupq_n_u8(1 << kTo));
}

inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  __builtin_memcpy(&v, p, 2);
  return v;
}

inline float HalfAt(const uint8_t* p) {
  float16_t half;
  __builtin_memcpy(&half, p, 2);
  return static_cast<float>(half);
}

// Four halves `stride` bytes apart.
inline float32x4_t Halves4(const uint8_t* p, uint64_t stride) {
  uint64_t bits = LoadU16(p) | uint64_t{LoadU16(p + stride)} << 16;
  bits |= uint64_t{LoadU16(p + 2 * stride)} << 32 | uint64_t{LoadU16(p + 3 * stride)} << 48;
  return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
}

// Lane r: the sum of v[r]'s lanes.
inline int32x4_t SumLanes(const int32x4_t* v) {
  return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)): the order of scalar/lanes.h.
inline float FoldFloats(float32x4_t low, float32x4_t high) {
  const float32x4_t quad = vaddq_f32(low, high);
  const float32x2_t pair = vadd_f32(vget_low_f32(quad), vget_high_f32(quad));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

}  // namespace
}  // namespace sluice
