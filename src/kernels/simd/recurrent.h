// The gated delta rule and the short convolution, for every instruction set.
//
// Contract: as ops.h, for a value head of whole vectors and a kernel of four taps (everything else
// is the scalar leaf's). A column's chain runs over i in order whatever the block width. V is a
// vector type: see rows.h. Unnamed namespace: see tiles.h.
#pragma once

#include "kernels/ops.h"
#include "kernels/simd/exp.h"

namespace sluice {
namespace {

// kVectors vectors of columns of the state from column c on. The second pass finds the block in the
// first-level cache, so S crosses the memory bus once.
template <class V, int kVectors>
void DeltaColumns(const DeltaStepArgs& args, uint32_t c) {
  typename V::Vec dot[kVectors], delta[kVectors], out[kVectors];
  for (int j = 0; j < kVectors; ++j) dot[j] = out[j] = V::Zero();
  for (uint32_t i = 0; i < args.kd; ++i) {
    const float* s = args.state + uint64_t{i} * args.vd + c;
    const typename V::Vec k = V::Same(args.k[i]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) dot[j] = V::Fma(k, V::Load(s + V::kLanes * j), dot[j]);
  }
  const typename V::Vec decay = V::Same(args.decay), beta = V::Same(args.beta);
  for (int j = 0; j < kVectors; ++j) {
    const typename V::Vec v = V::Load(args.v + c + V::kLanes * j);
    delta[j] = V::Mul(beta, V::Fnma(decay, dot[j], v));
  }
  for (uint32_t i = 0; i < args.kd; ++i) {
    float* s = args.state + uint64_t{i} * args.vd + c;
    const typename V::Vec k = V::Same(args.k[i]), q = V::Same(args.q[i]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const typename V::Vec kept = V::Mul(decay, V::Load(s + V::kLanes * j));
      const typename V::Vec now = V::Fma(k, delta[j], kept);
      V::Store(s + V::kLanes * j, now);
      out[j] = V::Fma(q, now, out[j]);
    }
  }
  for (int j = 0; j < kVectors; ++j) V::Store(args.out + c + V::kLanes * j, out[j]);
}

template <class V>
void DeltaStepOf(const DeltaStepArgs& args) {
  uint32_t c = 0;
  for (; c + 4 * V::kLanes <= args.vd; c += 4 * V::kLanes) DeltaColumns<V, 4>(args, c);
  for (; c < args.vd; c += V::kLanes) DeltaColumns<V, 1>(args, c);
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

template <class V>
void ConvStepOf(const float* w, const float* x, float* state, uint32_t begin, uint32_t end,
                float* y) {
  Windows<3>(w, x, state, begin, end, y);
  uint32_t c = begin;
  for (; c + V::kLanes <= end; c += V::kLanes) {
    const typename V::Vec v = V::Load(y + c);
    V::Store(y + c, V::Mul(v, SigmoidOf<V>(v)));
  }
  for (; c < end; ++c) {
    const typename V::Vec v = V::Same(y[c]);
    y[c] = V::First(V::Mul(v, SigmoidOf<V>(v)));
  }
}

}  // namespace
}  // namespace sluice
