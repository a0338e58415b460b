// Rotary frequencies and attention factors of yarn against numbers that another program computed
// from the published formulas, and against what the formulas say of single pairs.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace sluice {
namespace {

RopeConfig Yarn(uint32_t dims, float theta, float factor, uint32_t original) {
  RopeConfig c;
  c.dims = dims;
  c.theta = theta;
  c.scaling = RopeScaling::kYarn;
  c.factor = factor;
  c.original_context = original;
  return c;
}

// The angle of each pair at position 1 is its frequency.
std::vector<double> Frequencies(const RopeConfig& config) {
  const RopeTable table(config, {});
  std::vector<float> cos(table.half()), sin(table.half());
  table.Fill(1, cos.data(), sin.data());
  std::vector<double> out;
  for (size_t j = 0; j < cos.size(); ++j)
    out.push_back(std::atan2(static_cast<double>(sin[j]), static_cast<double>(cos[j])));
  return out;
}

// How often a pair turns within the original context.
double Turns(double frequency, uint32_t context) {
  return context * frequency / (2 * std::numbers::pi);
}

// Peng et al., YaRN (2023), 3.2: what turns more often than beta_fast stays, what turns less often
// than beta_slow is interpolated, and there is a ramp between; as transformers does it, the ramp is
// over the index of the pair, from the last whole index to the first.
TEST(Yarn, FastPairsStaySlowPairsAreInterpolated) {
  const RopeConfig c = Yarn(128, 1e6f, 4, 32768);
  const std::vector<double> got = Frequencies(c);
  uint32_t kept = 0, divided = 0, between = 0;
  double last_share = 0;
  for (uint32_t j = 0; j < 64; ++j) {
    const double plain = std::pow(1e6, -2.0 * j / 128), share = (1 - got[j] / plain) / (1 - 0.25);
    const double turns = Turns(plain, 32768);
    if (turns > 32 * 1.3) {
      EXPECT_NEAR(share, 0, 1e-5) << j;
      ++kept;
    } else if (turns < 1 / 1.3) {
      EXPECT_NEAR(share, 1, 1e-5) << j;
      ++divided;
    } else {
      EXPECT_GE(share, last_share - 1e-5) << j;
      ++between;
    }
    last_share = share;
  }
  EXPECT_GT(kept, 15u);
  EXPECT_GT(divided, 15u);
  EXPECT_GT(between, 10u);
}

// From a program of its own (double precision, the formulas as transformers 4.5x documents them):
// a short range, a long one, and one that is not truncated to whole indices.
TEST(Yarn, EqualsNumbersFromElsewhere) {
  struct Case {
    RopeConfig config;
    uint32_t step;
    std::vector<double> want;
  };
  RopeConfig whole = Yarn(64, 150000, 32, 4096);
  whole.truncate = false;
  const Case cases[] = {
      {Yarn(16, 1e4f, 4, 64),
       1,
       {1, 0.237170825, 0.05, 0.00790569415, 0.0025, 0.000790569415, 0.00025, 7.90569415e-05}},
      {Yarn(128, 1e6f, 4, 32768),
       8,
       {1, 0.177827941, 0.0316227766, 0.00537532149, 0.000602941176, 4.44569853e-05, 7.90569415e-06,
        1.40585331e-06}},
      {whole,
       4,
       {1, 0.225418, 0.0508132748, 0.00679495949, 0.000456483919, 1.81883367e-05, 4.09997848e-06,
        9.2420895e-07}},
  };
  for (const Case& c : cases) {
    const std::vector<double> got = Frequencies(c.config);
    ASSERT_EQ(got.size(), c.step * c.want.size());
    for (size_t i = 0; i < c.want.size(); ++i)
      EXPECT_NEAR(got[i * c.step] / c.want[i], 1, 2e-6) << c.config.dims << ", pair " << i * c.step;
  }
}

TEST(Yarn, TheAttentionFactorIsOnCosAndSin) {
  RopeConfig c = Yarn(16, 1e4f, 4, 64);
  const RopeTable plain(c, {});
  c.attn_factor = 1.138629436f;  // 0.1 ln 4 + 1
  const RopeTable scaled(c, {});
  std::vector<float> cos(8), sin(8), cos_scaled(8), sin_scaled(8);
  for (const uint32_t position : {0u, 1u, 100u, 4095u}) {
    plain.Fill(position, cos.data(), sin.data());
    scaled.Fill(position, cos_scaled.data(), sin_scaled.data());
    for (size_t j = 0; j < 8; ++j) {
      EXPECT_FLOAT_EQ(cos_scaled[j], cos[j] * 1.138629436f);
      EXPECT_FLOAT_EQ(sin_scaled[j], sin[j] * 1.138629436f);
      EXPECT_NEAR(cos[j] * cos[j] + sin[j] * sin[j], 1, 1e-6);
    }
  }
}

}  // namespace
}  // namespace sluice
