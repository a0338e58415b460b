// AVX-512 beside AVX2: it leaves nothing to AVX2 that it has wider, and what its leaves promise to
// have in common (avx512/leaves.h) is so to the bit.
#include <functional>

#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

#if defined(__x86_64__)

namespace sluice::testing {
namespace {

class WideLeaves : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    wide_ = EmulatedOps(GetParam());
    narrow_ = GetOps("avx2");
    if (wide_ == nullptr || narrow_ == nullptr) {
      GTEST_SKIP() << "AVX-512 kernels are NOT tested: no AVX2, or no SIMDe at build time";
    }
  }
  const Ops* wide_ = nullptr;
  const Ops* narrow_ = nullptr;
};

TEST_P(WideLeaves, AreItsOwn) {
  EXPECT_NE(wide_->matmul, narrow_->matmul);
  EXPECT_NE(wide_->quantize, narrow_->quantize);
  EXPECT_NE(wide_->quantize_row, narrow_->quantize_row);
  EXPECT_NE(wide_->norm_row, narrow_->norm_row);
  EXPECT_NE(wide_->glu_row, narrow_->glu_row);
  EXPECT_NE(wide_->rms_norm, narrow_->rms_norm);
  EXPECT_NE(wide_->rope, narrow_->rope);
  EXPECT_NE(wide_->silu_mul, narrow_->silu_mul);
  EXPECT_NE(wide_->gelu_tanh_mul, narrow_->gelu_tanh_mul);
  EXPECT_NE(wide_->swiglu_clamped_mul, narrow_->swiglu_clamped_mul);
  EXPECT_NE(wide_->add, narrow_->add);
  EXPECT_NE(wide_->mul_sigmoid, narrow_->mul_sigmoid);
  EXPECT_NE(wide_->softmax, narrow_->softmax);
  EXPECT_NE(wide_->attention, narrow_->attention);
  EXPECT_NE(wide_->delta_step, narrow_->delta_step);
  EXPECT_NE(wide_->conv_step, narrow_->conv_step);
}

TEST_P(WideLeaves, ElementsHaveTheBitsOfAvx2) {
  using Call = std::function<void(const Ops&, const float*, const float*, uint32_t, float*)>;
  const std::pair<const char*, Call> calls[] = {
      {"rms_norm", [](auto& o, auto a, auto b, auto n, auto y) { o.rms_norm(a, b, 1e-5f, n, y); }},
      {"no weights",
       [](auto& o, auto a, auto, auto n, auto y) { o.rms_norm(a, nullptr, 0, n, y); }},
      {"rope",
       [](auto& o, auto a, auto b, auto n, auto y) { o.rope(y, 1, n, n & ~1u, false, a, b); }},
      {"adjacent",
       [](auto& o, auto a, auto b, auto n, auto y) { o.rope(y, 1, n, n & ~1u, true, a, b); }},
      {"silu", [](auto& o, auto a, auto b, auto n, auto y) { o.silu_mul(a, b, n, y); }},
      {"gelu", [](auto& o, auto a, auto b, auto n, auto y) { o.gelu_tanh_mul(a, b, n, y); }},
      {"swiglu",
       [](auto& o, auto a, auto b, auto n, auto y) { o.swiglu_clamped_mul(a, b, 7, 1.7f, n, y); }},
      {"add", [](auto& o, auto a, auto, auto n, auto y) { o.add(a, 0.3f, n, y); }},
      {"sigmoid", [](auto& o, auto a, auto, auto n, auto y) { o.mul_sigmoid(a, n, y); }}};
  for (const uint32_t n : {1u, 7u, 8u, 16u, 31u, 33u, 64u, 300u, 1029u}) {
    const auto a = Gaussian(n, n, 9), b = Gaussian(n, n + 1, 3);
    for (const auto& [name, call] : calls) {
      std::vector<float> got = b, want = b;
      call(*wide_, a.data(), b.data(), n, got.data());
      call(*narrow_, a.data(), b.data(), n, want.data());
      EXPECT_TRUE(SameBits(got, want)) << name << " n " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, WideLeaves, ::testing::Values("emulated_avx512", "emulated_amx"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace sluice::testing

#endif
