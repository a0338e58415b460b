// Float activations: each weight row is decoded 256 elements at a time and multiplied with every
// token.
//
// Order of the sum: element k is fused into lane k % 8, k ascending; the lanes are folded as in
// scalar/lanes.h; a tail is padded with zeros.
#include <arm_neon.h>

#include "kernels/neon/leaves.h"

namespace sluice::neon {
namespace {

constexpr uint32_t kTileTokens = 64, kChunk = 256;

void Decode(WeightType type, const uint8_t* p, uint32_t n, float* out) {
  if (type == WeightType::kF16) {
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
      const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(p + 2 * i));
      vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(half)));
    }
    if (i < n) DecodeRow(type, p + 2 * i, out + i, n - i);
  } else {
    DecodeRow(type, p, out, n);
  }
}

struct Lanes {
  float32x4_t low, high;
};

void Fuse(const float* w, const float* x, uint32_t n, Lanes* acc) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    acc->low = vfmaq_f32(acc->low, vld1q_f32(w + i), vld1q_f32(x + i));
    acc->high = vfmaq_f32(acc->high, vld1q_f32(w + i + 4), vld1q_f32(x + i + 4));
  }
  if (i == n) return;
  float tw[8] = {}, tx[8] = {};
  for (uint32_t j = i; j < n; ++j) {
    tw[j - i] = w[j];
    tx[j - i] = x[j];
  }
  acc->low = vfmaq_f32(acc->low, vld1q_f32(tw), vld1q_f32(tx));
  acc->high = vfmaq_f32(acc->high, vld1q_f32(tw + 4), vld1q_f32(tx + 4));
}

float Fold(const Lanes& lanes) {
  const float32x4_t quad = vaddq_f32(lanes.low, lanes.high);
  const float32x2_t pair = vadd_f32(vget_low_f32(quad), vget_high_f32(quad));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

}  // namespace

void MatmulFloat(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const ActRows& x = args.x;
  float w[kChunk];
  for (uint32_t t0 = 0; t0 < x.rows; t0 += kTileTokens) {
    const uint32_t tokens = x.rows - t0 < kTileTokens ? x.rows - t0 : kTileTokens;
    for (uint32_t r = row_begin; r < row_end; ++r) {
      Lanes acc[kTileTokens];
      for (uint32_t i = 0; i < tokens; ++i) acc[i] = {vdupq_n_f32(0), vdupq_n_f32(0)};
      const uint8_t* row = args.weights + r * args.row_bytes;
      for (uint32_t c = 0; c < x.cols; c += kChunk) {
        const uint32_t n = x.cols - c < kChunk ? x.cols - c : kChunk;
        Decode(args.type, row + uint64_t{c} / info.block_elems * info.block_bytes, n, w);
        for (uint32_t i = 0; i < tokens; ++i) {
          Fuse(w, x.f32 + (t0 + i) * x.f32_stride + c, n, &acc[i]);
        }
      }
      for (uint32_t i = 0; i < tokens; ++i) {
        const float sum = Fold(acc[i]);
        args.out[(t0 + i) * args.out_stride + r] = args.bias ? sum + args.bias[r] : sum;
      }
    }
  }
}

}  // namespace sluice::neon
