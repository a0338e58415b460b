#include <cmath>

#include "kernels/scalar/leaves.h"

namespace sluice::scalar {

// S <- decay S; d = beta (v - k^T S); S <- S + k d^T; out = q^T S. Each column of S is on its own,
// so both passes run over a block of columns that stays in the first-level cache.
void DeltaStep(const DeltaStepArgs& args) {
  constexpr uint32_t kColumns = 32;
  for (uint32_t c0 = 0; c0 < args.vd; c0 += kColumns) {
    const uint32_t n = args.vd - c0 < kColumns ? args.vd - c0 : kColumns;
    float dot[kColumns] = {}, delta[kColumns], out[kColumns] = {};
    for (uint32_t i = 0; i < args.kd; ++i) {
      const float* s = args.state + uint64_t{i} * args.vd + c0;
      for (uint32_t j = 0; j < n; ++j) dot[j] += args.k[i] * (args.decay * s[j]);
    }
    for (uint32_t j = 0; j < n; ++j) delta[j] = args.beta * (args.v[c0 + j] - dot[j]);
    for (uint32_t i = 0; i < args.kd; ++i) {
      float* s = args.state + uint64_t{i} * args.vd + c0;
      for (uint32_t j = 0; j < n; ++j) {
        s[j] = args.decay * s[j] + args.k[i] * delta[j];
        out[j] += args.q[i] * s[j];
      }
    }
    for (uint32_t j = 0; j < n; ++j) args.out[c0 + j] = out[j];
  }
}

void ConvStep(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
              uint32_t end, float* y) {
  const uint32_t past = kernel - 1;
  for (uint32_t c = begin; c < end; ++c) {
    const float* wc = w + uint64_t{c} * kernel;
    float* window = state + uint64_t{c} * past;
    float sum = 0;
    for (uint32_t i = 0; i < past; ++i) sum += wc[i] * window[i];
    sum += wc[past] * x[c];
    for (uint32_t i = 0; i + 1 < past; ++i) window[i] = window[i + 1];
    if (past > 0) window[past - 1] = x[c];
    y[c] = sum / (1.0f + std::exp(-sum));
  }
}

}  // namespace sluice::scalar
