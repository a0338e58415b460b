#include "kernels/neon/floats.h"
#include "kernels/neon/leaves.h"
#include "kernels/scalar/leaves.h"

namespace sluice::neon {
namespace {

// 4 * kVectors columns of the state from column c on. A column's chain runs over i in order
// whatever the block width. The second pass finds the block in the nearest cache, so S crosses the
// memory bus once.
template <int kVectors>
void Columns(const DeltaStepArgs& args, uint32_t c) {
  float32x4_t dot[kVectors], delta[kVectors], out[kVectors];
  for (int j = 0; j < kVectors; ++j) dot[j] = out[j] = vdupq_n_f32(0);
  for (uint32_t i = 0; i < args.kd; ++i) {
    const float* s = args.state + uint64_t{i} * args.vd + c;
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      dot[j] = vfmaq_n_f32(dot[j], vld1q_f32(s + 4 * j), args.k[i]);
    }
  }
  for (int j = 0; j < kVectors; ++j) {
    const float32x4_t v = vld1q_f32(args.v + c + 4 * j);
    delta[j] = vmulq_n_f32(vfmsq_n_f32(v, dot[j], args.decay), args.beta);
  }
  for (uint32_t i = 0; i < args.kd; ++i) {
    float* s = args.state + uint64_t{i} * args.vd + c;
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const float32x4_t kept = vmulq_n_f32(vld1q_f32(s + 4 * j), args.decay);
      const float32x4_t now = vfmaq_n_f32(kept, delta[j], args.k[i]);
      vst1q_f32(s + 4 * j, now);
      out[j] = vfmaq_n_f32(out[j], now, args.q[i]);
    }
  }
  for (int j = 0; j < kVectors; ++j) vst1q_f32(args.out + c + 4 * j, out[j]);
}

// Window sums of channels [begin, end) to y; the state moves on.
template <uint32_t kPast>
void Windows(const float* w, const float* x, float* state, uint32_t begin, uint32_t end, float* y) {
  for (uint32_t c = begin; c < end; ++c) {
    const float* wc = w + uint64_t{c} * (kPast + 1);
    float* window = state + uint64_t{c} * kPast;
    float sum = 0;
    for (uint32_t i = 0; i < kPast; ++i) sum += wc[i] * window[i];
    const float in = x[c];
    sum += wc[kPast] * in;
    for (uint32_t i = 0; i + 1 < kPast; ++i) window[i] = window[i + 1];
    window[kPast - 1] = in;
    y[c] = sum;
  }
}

}  // namespace

void DeltaStep(const DeltaStepArgs& args) {
  if (args.vd % 4 != 0) return scalar::DeltaStep(args);
  uint32_t c = 0;
  for (; c + 16 <= args.vd; c += 16) Columns<4>(args, c);
  for (; c < args.vd; c += 4) Columns<1>(args, c);
}

void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y) {
  if (kernel != 4) return scalar::ConvStep(w, kernel, x, state, begin, end, y);
  Windows<3>(w, x, state, begin, end, y);
  uint32_t c = begin;
  for (; c + 4 <= end; c += 4) {
    const float32x4_t v = vld1q_f32(y + c);
    vst1q_f32(y + c, vmulq_f32(v, Sigmoid(v)));
  }
  for (; c < end; ++c) {
    const float32x4_t v = vdupq_n_f32(y[c]);
    y[c] = vgetq_lane_f32(vmulq_f32(v, Sigmoid(v)), 0);
  }
}

}  // namespace sluice::neon
