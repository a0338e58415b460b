// Element-wise operations, norms, rope and softmax: against formulas in double, at lengths that
// leave tails.
#include <functional>

#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

constexpr uint32_t kLengths[] = {1, 3, 8, 15, 31, 64, 300, 1027};

class Elementwise : public IsaTest {};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Calls `run` for every length with two random inputs and compares with `formula`, element by
// element.
void CheckMap(const std::function<void(const float*, const float*, uint32_t, float*)>& run,
              const std::function<double(double, double)>& formula) {
  for (const uint32_t n : kLengths) {
    const auto a = Gaussian(n, n, 4), b = Gaussian(n, n + 1, 4);
    std::vector<float> y = b;
    y.push_back(12345);  // must stay
    run(a.data(), b.data(), n, y.data());
    for (uint32_t i = 0; i < n; ++i) {
      const double want = formula(a[i], b[i]);
      EXPECT_NEAR(y[i], want, 2e-6 * std::abs(want) + 1e-6) << "n " << n << " i " << i;
    }
    EXPECT_EQ(y[n], 12345);
  }
}

TEST_P(Elementwise, SiluMul) {
  CheckMap([&](auto a, auto b, auto n, auto y) { ops().silu_mul(a, b, n, y); },
           [](double a, double b) { return a * Sigmoid(a) * b; });
}

TEST_P(Elementwise, GeluTanhMul) {
  CheckMap([&](auto a, auto b, auto n, auto y) { ops().gelu_tanh_mul(a, b, n, y); },
           [](double x, double b) {
             const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
             return 0.5 * x * (1 + std::tanh(u)) * b;
           });
}

TEST_P(Elementwise, SwigluClampedMul) {
  CheckMap(
      [&](auto a, auto b, auto n, auto y) { ops().swiglu_clamped_mul(a, b, 3.5f, 1.702f, n, y); },
      [](double g, double u) {
        g = std::min(g, 3.5);
        u = std::clamp(u, -3.5, 3.5);
        return g * Sigmoid(1.702f * g) * (u + 1);
      });
}

TEST_P(Elementwise, Add) {
  CheckMap([&](auto a, auto, auto n, auto y) { ops().add(a, 0.75f, n, y); },
           [](double a, double b) { return b + 0.75 * a; });
}

TEST_P(Elementwise, MulSigmoid) {
  CheckMap([&](auto a, auto, auto n, auto y) { ops().mul_sigmoid(a, n, y); },
           [](double a, double b) { return b * Sigmoid(a); });
}

TEST_P(Elementwise, ExtremeGatesStayFinite) {
  const float gate[] = {-1e30f, -200, -89, -87.5f, 0, 87.5f, 89, 200};
  const float up[] = {1, 1, 1, 1, 1, 1, 1, 1};
  float y[8];
  ops().silu_mul(gate, up, 8, y);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(std::isfinite(y[i])) << gate[i];
    EXPECT_NEAR(y[i], gate[i] > 0 ? gate[i] : 0, 1e-4) << gate[i];
  }
}

TEST_P(Elementwise, NanPasses) {
  for (const uint32_t n : {5u, 8u, 20u}) {
    for (uint32_t bad = 0; bad < n; ++bad) {
      std::vector<float> a(n, 1), b(n, 2), y(n);
      a[bad] = NAN;
      ops().silu_mul(a.data(), b.data(), n, y.data());
      EXPECT_TRUE(std::isnan(y[bad]));
      ops().gelu_tanh_mul(a.data(), b.data(), n, y.data());
      EXPECT_TRUE(std::isnan(y[bad]));
      ops().swiglu_clamped_mul(a.data(), b.data(), 7, 1, n, y.data());
      EXPECT_TRUE(std::isnan(y[bad]));
      ops().swiglu_clamped_mul(b.data(), a.data(), 7, 1, n, y.data());
      EXPECT_TRUE(std::isnan(y[bad]));
      ops().rms_norm(a.data(), nullptr, 1e-6f, n, y.data());
      EXPECT_TRUE(std::isnan(y[0]));
      ops().softmax(a.data(), n);
      EXPECT_TRUE(std::isnan(a[bad]));
    }
  }
}

TEST_P(Elementwise, RmsNorm) {
  for (const uint32_t n : kLengths) {
    const auto x = Gaussian(n, n, 3), w = Gaussian(n, n + 1);
    double sum = 0;
    for (const float v : x) sum += double(v) * v;
    const double scale = 1 / std::sqrt(sum / n + 1e-5);
    std::vector<float> y(n), in_place = x, plain(n);
    ops().rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
    ops().rms_norm(x.data(), nullptr, 1e-5f, n, plain.data());
    ops().rms_norm(in_place.data(), w.data(), 1e-5f, n, in_place.data());
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(y[i], x[i] * scale * w[i], 2e-6 * std::abs(x[i] * scale * w[i]));
      EXPECT_NEAR(plain[i], x[i] * scale, 2e-6 * std::abs(x[i] * scale));
    }
    EXPECT_TRUE(SameBits(y, in_place));
  }
}

TEST_P(Elementwise, Rope) {
  for (const bool adjacent : {false, true}) {
    for (const uint32_t dims : {2u, 6u, 16u, 24u, 64u}) {
      const uint32_t heads = 3, head_dim = 64;
      const auto x = Gaussian(heads * head_dim, dims);
      std::vector<float> cos(dims / 2), sin(dims / 2), y = x;
      for (uint32_t j = 0; j < dims / 2; ++j)
        cos[j] = std::cos(j + 1.f), sin[j] = std::sin(j + 1.f);
      ops().rope(y.data(), heads, head_dim, dims, adjacent, cos.data(), sin.data());
      std::vector<double> want(x.begin(), x.end());
      for (uint32_t h = 0; h < heads; ++h) {
        for (uint32_t j = 0; j < dims / 2; ++j) {
          const uint32_t a = h * head_dim + (adjacent ? 2 * j : j);
          const uint32_t b = adjacent ? a + 1 : a + dims / 2;
          want[a] = double(x[a]) * cos[j] - double(x[b]) * sin[j];
          want[b] = double(x[b]) * cos[j] + double(x[a]) * sin[j];
        }
      }
      EXPECT_LT(RelativeError(y, want), 1e-6) << adjacent << " " << dims;
    }
  }
}

TEST_P(Elementwise, Softmax) {
  for (const uint32_t n : kLengths) {
    auto x = Gaussian(n, n, 10);
    double max = -1e300, sum = 0;
    for (const float v : x) max = std::max(max, double(v));
    std::vector<double> want;
    for (const float v : x) want.push_back(std::exp(v - max)), sum += want.back();
    for (double& v : want) v /= sum;
    ops().softmax(x.data(), n);
    EXPECT_LT(RelativeError(x, want), 2e-6);
  }
  ops().softmax(nullptr, 0);
}

// The exponential's stated error, 1.2e-7 (simd/exp.h). Softmax of {0, x} gives e^x itself where
// 1 + e^x is 1, and e^x / (1 + e^x) with two more roundings above; the ratio of both is e^x.
TEST_P(Elementwise, ExponentialError) {
  constexpr double kStated = 1.2e-7, kRounding = 6e-8;
  double worst = 0;
  for (float x = -87.3f; x < -17; x += 0.00137f) {
    float v[2] = {0, x};
    ops().softmax(v, 2);
    ASSERT_EQ(v[0], 1) << x;
    worst = std::max(worst, std::abs(v[1] / std::exp(double(x)) - 1));
  }
  EXPECT_LT(worst, kStated);
  worst = 0;
  for (float x = -17; x <= 0; x += 0.00037f) {
    float v[2] = {0, x};
    ops().softmax(v, 2);
    worst = std::max(worst, std::abs(double(v[1]) / v[0] / std::exp(double(x)) - 1));
  }
  EXPECT_LT(worst, kStated + 2 * kRounding);
}

// And for positive arguments: 1 / sigmoid(-x) = 1 + e^x.
TEST_P(Elementwise, ExponentialErrorOfLargeArguments) {
  double worst = 0;
  for (float x = 17; x < 86; x += 0.0137f) {
    float y = 1;
    const float gate = -x;
    ops().mul_sigmoid(&gate, 1, &y);
    worst = std::max(worst, std::abs(y * (1 + std::exp(double(x))) - 1));
  }
  EXPECT_LT(worst, 1.2e-7 + 2 * 6e-8);
}

// Beyond the range: nothing below it, no infinity in the middle of a sum above it, NaN stays.
TEST_P(Elementwise, ExponentialOfExtremes) {
  float v[4] = {0, -88, -1000, -INFINITY};
  ops().softmax(v, 4);
  EXPECT_EQ(v[0], 1);
  for (int i = 1; i < 4; ++i) EXPECT_LT(v[i], 1.2e-38f);
  float y[3] = {1, 1, 1};
  const float gate[3] = {-INFINITY, 1000, NAN};
  ops().mul_sigmoid(gate, 3, y);
  EXPECT_LT(y[0], 1e-37f);
  EXPECT_EQ(y[1], 1);
  EXPECT_TRUE(std::isnan(y[2]));
}

class Quantizer : public IsaTest {};

TEST_P(Quantizer, IsTheSameEverywhere) {
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    const uint32_t n = 2304;
    std::vector<float> x = Gaussian(n, 3, 2);
    for (uint32_t i = 0; i < 256; ++i) x[i] = 0;                                 // zeros
    for (uint32_t i = 256; i < 512; ++i) x[i] *= 1e-40f;                         // subnormal
    for (uint32_t i = 512; i < 768; ++i) x[i] *= 1e30f;                          // large
    for (uint32_t i = 768; i < 1024; ++i) x[i] = float(int(i % 255) - 127) / 2;  // ties
    x[1030] = NAN, x[1300] = INFINITY, x[1600] = -INFINITY;
    // Around the smallest block that counts, 2^-120.
    for (uint32_t i = 1792; i < 2048; ++i) x[i] *= 3e-37f;
    for (uint32_t i = 2048; i < 2304; ++i) x[i] *= 1e-37f;
    const auto got = MakeActivations(ops(), format, x, 1, n);
    const auto want = MakeActivations(scalar(), format, x, 1, n);
    EXPECT_EQ(got.q, want.q);
    EXPECT_EQ(got.sums, want.sums);
    EXPECT_TRUE(SameBits(got.scale, want.scale));
  }
}

TEST_P(Quantizer, MeetsItsDefinition) {
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    const uint32_t n = 512, block = format == ActFormat::kQ8x32 ? 32 : 256;
    const uint32_t sum_elems = format == ActFormat::kQ8x32 ? 32 : 16;
    const auto x = Gaussian(n, 5);
    const auto a = MakeActivations(ops(), format, x, 1, n);
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(a.q[i] * a.scale[i / block], x[i], 0.501 * a.scale[i / block]);
      EXPECT_LE(std::abs(int(a.q[i])), 127);
    }
    for (uint32_t s = 0; s < n / sum_elems; ++s) {
      int sum = 0;
      for (uint32_t i = 0; i < sum_elems; ++i) sum += a.q[s * sum_elems + i];
      EXPECT_EQ(a.sums[s], sum);
    }
    auto bad = x;
    bad[300] = NAN;
    const auto b = MakeActivations(ops(), format, bad, 1, n);
    EXPECT_TRUE(std::isnan(b.scale[300 / block]));
    EXPECT_FALSE(std::isnan(b.scale[0]));
  }
}

SLUICE_EVERY_ISA(Elementwise);
SLUICE_EVERY_ISA(Quantizer);

}  // namespace
}  // namespace sluice::testing
