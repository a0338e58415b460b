// The gated delta rule and the short convolution against their formulas in double.
#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

class Recurrent : public IsaTest {};

// S <- g S; d = beta (v - k^T S); S <- S + k d^T; o = q^T S (architectures: gated DeltaNet).
TEST_P(Recurrent, DeltaStep) {
  for (const auto& [kd, vd] : std::vector<std::pair<uint32_t, uint32_t>>{
           {128, 128}, {16, 32}, {64, 40}, {8, 12}, {24, 8}, {16, 176}}) {
    std::vector<float> state = Gaussian(kd * vd, 1), out(vd);
    std::vector<double> s(state.begin(), state.end()), want(vd);
    for (uint32_t step = 0; step < 6; ++step) {
      auto q = Gaussian(kd, 10 + step), k = Gaussian(kd, 20 + step);
      const auto v = Gaussian(vd, 30 + step);
      double norm = 0;
      for (const float e : k) norm += double(e) * e;
      for (float& e : k) e = float(e / std::sqrt(norm));
      const float beta = 0.3f + 0.1f * step, decay = 0.9f - 0.1f * step;
      ops().delta_step({.state = state.data(),
                        .q = q.data(),
                        .k = k.data(),
                        .v = v.data(),
                        .beta = beta,
                        .decay = decay,
                        .kd = kd,
                        .vd = vd,
                        .out = out.data()});
      for (double& e : s) e *= decay;
      for (uint32_t c = 0; c < vd; ++c) {
        double dot = 0;
        want[c] = 0;
        for (uint32_t i = 0; i < kd; ++i) dot += k[i] * s[i * vd + c];
        const double d = beta * (v[c] - dot);
        for (uint32_t i = 0; i < kd; ++i) {
          s[i * vd + c] += k[i] * d;
          want[c] += q[i] * s[i * vd + c];
        }
      }
      EXPECT_LT(RelativeError(out, want), 1e-5) << kd << " x " << vd;
      EXPECT_LT(RelativeError(state, s), 1e-5) << kd << " x " << vd;
    }
  }
}

TEST_P(Recurrent, ConvStep) {
  for (const uint32_t kernel : {1u, 2u, 3u, 4u, 5u}) {
    const uint32_t channels = 45, past = kernel - 1;
    const auto w = Gaussian(channels * kernel, kernel);
    std::vector<float> state(channels * past), y(channels);
    std::vector<std::vector<float>> inputs(past, std::vector<float>(channels, 0.f));
    for (uint32_t step = 0; step < 7; ++step) {
      inputs.push_back(Gaussian(channels, 100 + step));
      // In two ranges, as two threads would.
      ops().conv_step(w.data(), kernel, inputs.back().data(), state.data(), 0, 13, y.data());
      ops().conv_step(w.data(), kernel, inputs.back().data(), state.data(), 13, channels, y.data());
      for (uint32_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (uint32_t i = 0; i < kernel; ++i)
          sum += double(w[c * kernel + i]) * inputs[step + i][c];
        EXPECT_NEAR(y[c], sum / (1 + std::exp(-sum)), 3e-6) << kernel;
        for (uint32_t i = 0; i < past; ++i) {
          EXPECT_EQ(state[c * past + i], inputs[step + 1 + i][c]);
        }
      }
    }
  }
}

SLUICE_EVERY_ISA(Recurrent);

}  // namespace
}  // namespace sluice::testing
