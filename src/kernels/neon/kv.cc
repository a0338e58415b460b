// K and V rows to their stored formats: the bytes of scalar/kv.cc.
#include "kernels/kv_row.h"
#include "kernels/neon/leaves.h"
#include "kernels/neon/simd.h"
#include "kernels/scalar/leaves.h"

namespace sluice::neon {
namespace {

struct Block {
  float32x4_t v[8];
};

inline Block LoadBlock(const float* x) {
  Block b;
  for (int i = 0; i < 8; ++i) b.v[i] = vld1q_f32(x + 4 * i);
  return b;
}

struct Range {
  float min, max;
  bool finite;
};

inline Range RangeOf(const Block& b) {
  float32x4_t min = b.v[0], max = b.v[0];
  uint32x4_t good = vdupq_n_u32(~0u);
  for (const float32x4_t v : b.v) {
    min = vminq_f32(min, v);
    max = vmaxq_f32(max, v);
    // x - x is zero for finite numbers only.
    good = vandq_u32(good, vceqq_f32(vsubq_f32(v, v), vdupq_n_f32(0)));
  }
  return {vminvq_f32(min), vmaxvq_f32(max), vminvq_u32(good) != 0};
}

inline uint16_t ToHalf(float v) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(v))), 0);
}
inline float FromHalf(uint16_t v) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(v))), 0);
}

// (v - min) / d rounded and clamped: 16 of the block's elements as bytes.
inline int8x16_t Quants16(const float32x4_t* v, float min, float d, float low, float high) {
  int16x4_t q[4];
  for (int i = 0; i < 4; ++i) {
    const float32x4_t ratio = vdivq_f32(vsubq_f32(v[i], vdupq_n_f32(min)), vdupq_n_f32(d));
    const float32x4_t rounded = vrndnq_f32(ratio);
    q[i] = vmovn_s32(
        vcvtq_s32_f32(vminq_f32(vmaxq_f32(rounded, vdupq_n_f32(low)), vdupq_n_f32(high))));
  }
  return vcombine_s8(vmovn_s16(vcombine_s16(q[0], q[1])), vmovn_s16(vcombine_s16(q[2], q[3])));
}

inline bool Usable(float d) { return d > 0 && d < __builtin_inff(); }

void StoreQ8(const Block& b, const Range& range, uint8_t* out) {
  const float max_abs = range.max > -range.min ? range.max : -range.min;
  const uint16_t scale = ToHalf(max_abs / 127.0f + 0.0f);
  const float d = FromHalf(scale);
  int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
  if (Usable(d)) {
    for (int i = 0; i < 2; ++i) q[i] = Quants16(b.v + 4 * i, 0.0f, d, -127.0f, 127.0f);
  }
  __builtin_memcpy(out, &scale, 2);
  for (int i = 0; i < 2; ++i) vst1q_u8(out + 2 + 16 * i, vreinterpretq_u8_s8(q[i]));
}

void StoreQ4(const Block& b, const Range& range, uint8_t* out) {
  const uint16_t scale = ToHalf((range.max - range.min) / 15.0f + 0.0f),
                 low = ToHalf(range.min + 0.0f);
  const float d = FromHalf(scale), min = FromHalf(low);
  uint8x16_t q = vdupq_n_u8(0);
  if (Usable(d) && min - min == 0) {
    const uint8x16_t first = vreinterpretq_u8_s8(Quants16(b.v, min, d, 0.0f, 15.0f));
    const uint8x16_t second = vreinterpretq_u8_s8(Quants16(b.v + 4, min, d, 0.0f, 15.0f));
    q = vorrq_u8(first, vshlq_n_u8(second, 4));
  }
  __builtin_memcpy(out, &scale, 2);
  __builtin_memcpy(out + 2, &low, 2);
  vst1q_u8(out + 4, q);
}

void StoreHalves(bool is_value, const float* x, uint32_t n, uint8_t* row) {
  uint32_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float16x4_t half = vcvt_f16_f32(vld1q_f32(x + i));
    vst1_u8(row + 2 * uint64_t{i}, vreinterpret_u8_f16(half));
  }
  if (i < n) scalar::KvStore(KvFormat::kF16, is_value, x + i, n - i, row + 2 * uint64_t{i});
}

}  // namespace

void KvStore(KvFormat format, bool is_value, const float* x, uint32_t n, uint8_t* row) {
  if (format == KvFormat::kF16) return StoreHalves(is_value, x, n, row);
  if (format == KvFormat::kF32) return scalar::KvStore(format, is_value, x, n, row);
  const bool q4 = format == KvFormat::kK8V4 && is_value;
  const uint64_t bytes = q4 ? sizeof(KvQ4Block) : sizeof(KvQ8Block);
  for (uint32_t i = 0; i < n; i += kKvBlockElems, row += bytes) {
    if (n - i < kKvBlockElems) return scalar::KvStore(format, is_value, x + i, n - i, row);
    const Block b = LoadBlock(x + i);
    const Range range = RangeOf(b);
    if (!range.finite) {
      scalar::KvStore(format, is_value, x + i, kKvBlockElems, row);
    } else if (q4) {
      StoreQ4(b, range, row);
    } else {
      StoreQ8(b, range, row);
    }
  }
}

}  // namespace sluice::neon
