// Every instruction set against scalar on deterministic random and adversarial calls: what the fuzz
// target does, without a fuzzer.
#include "tests/kernels/differential.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/isa_test.h"

namespace sluice::testing {
namespace {

constexpr uint32_t kCases = 50000, kEmulatedCases = 20000;  // software is slow

class Differential : public IsaTest {};

TEST_P(Differential, RandomAndAdversarialCalls) {
  if (GetParam() == "scalar") GTEST_SKIP() << "the reference itself";
  const uint32_t cases = EmulatedOps(GetParam()) != nullptr ? kEmulatedCases : kCases;
  int wrong = 0;
  for (uint32_t i = 0; i < cases && wrong < 10; ++i) {
    const uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15u;
    uint8_t seed[8];
    std::memcpy(seed, &mixed, 8);
    const std::string error = CheckKernelCase(ops(), scalar(), seed);
    if (error.empty()) continue;
    ++wrong;
    ADD_FAILURE() << "case " << i << ": " << error;
  }
}

SLUICE_EVERY_ISA(Differential);

std::string FirstDifference(const Ops& ops) {
  for (uint32_t i = 0; i < 3000; ++i) {
    const uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15u;
    uint8_t seed[8];
    std::memcpy(seed, &mixed, 8);
    const std::string error = CheckKernelCase(ops, *GetOps("scalar"), seed);
    if (!error.empty()) return error;
  }
  return {};
}

// Slips that the comparison has to find: one bit of one product, a rounding mode, a forgotten NaN.
TEST(DifferentialFinds, SmallSlips) {
  Ops ops = *GetOps("scalar");
  EXPECT_EQ(FirstDifference(ops), "");
  ops.matmul = [](const MatmulArgs& args, uint32_t begin, uint32_t end) {
    GetOps("scalar")->matmul(args, begin, end);
    float& last = args.out[(args.x.rows - 1) * args.out_stride + end - 1];
    if (args.x.format != ActFormat::kF32) last = std::nextafter(last, 1e9f);
  };
  EXPECT_NE(FirstDifference(ops).find("int8"), std::string::npos);
  ops.matmul = [](const MatmulArgs& args, uint32_t begin, uint32_t end) {
    GetOps("scalar")->matmul(args, begin, end);
    if (args.x.format == ActFormat::kF32) args.out[begin] *= 1.0001f;
  };
  EXPECT_NE(FirstDifference(ops).find("f32"), std::string::npos);
  ops = *GetOps("scalar");
  ops.quantize = [](ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
                    int16_t* sums) {
    GetOps("scalar")->quantize(format, x, n, q, scale, sums);
    for (uint64_t i = 0; i < ActScales(format, n); ++i)
      if (std::isnan(scale[i])) scale[i] = 0;
  };
  EXPECT_NE(FirstDifference(ops).find("quantize"), std::string::npos);
  ops = *GetOps("scalar");
  ops.softmax = [](float* x, uint32_t n) {
    GetOps("scalar")->softmax(x, n);
    if (n > 0) x[n - 1] += 3e-5f;
  };
  EXPECT_NE(FirstDifference(ops).find("softmax"), std::string::npos);
  ops = *GetOps("scalar");
  ops.attention = [](const AttentionArgs& args) {
    AttentionArgs less = args;
    if (less.last > less.first) --less.last;
    GetOps("scalar")->attention(less);
  };
  EXPECT_NE(FirstDifference(ops).find("attention"), std::string::npos);
  ops = *GetOps("scalar");
  ops.kv_store = [](KvFormat format, bool is_value, const float* x, uint32_t n, uint8_t* row) {
    GetOps("scalar")->kv_store(format, is_value, x, n, row);
    row[0] ^= 1;
  };
  EXPECT_NE(FirstDifference(ops).find("kv_store"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
