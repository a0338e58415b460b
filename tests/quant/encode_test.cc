// Encoders: exact bytes where the format has one right answer, error below llama.cpp's where it is
// a search.
#include <gtest/gtest.h>

#include <limits>

#include "quant/types.h"
#include "quant_test_util.h"

namespace sluice {
namespace {

using namespace quant_test;  // NOLINT: test helpers

constexpr const char* kExact[] = {"BF16", "Q4_0",  "Q4_1",  "Q5_0", "Q5_1",
                                  "Q8_0", "MXFP4", "TQ1_0", "TQ2_0"};
constexpr const char* kSearched[] = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"};

std::vector<uint8_t> Encode(WeightType type, const std::vector<float>& in,
                            const float* importance = nullptr) {
  std::vector<uint8_t> blocks(RowBytes(type, in.size()).value(), 0xAA);
  const Status status = EncodeRow(type, in.data(), blocks.data(), in.size(), importance);
  EXPECT_TRUE(status.ok()) << InfoOf(type).name << ": " << status.ToString();
  return blocks;
}

std::vector<float> Decode(WeightType type, const std::vector<uint8_t>& blocks, size_t n) {
  std::vector<float> out(n, -1);
  DecodeRow(type, blocks.data(), out.data(), n);
  return out;
}

std::vector<float> RoundTrip(WeightType type, const std::vector<float>& in,
                             const float* importance = nullptr) {
  return Decode(type, Encode(type, in, importance), in.size());
}

std::vector<const char*> AllEncoders() {
  std::vector<const char*> names = {"F32", "F16"};
  names.insert(names.end(), std::begin(kExact), std::end(kExact));
  names.insert(names.end(), std::begin(kSearched), std::end(kSearched));
  return names;
}

std::string NameOf(const testing::TestParamInfo<const char*>& p) { return p.param; }

class ExactEncode : public testing::TestWithParam<const char*> {
 protected:
  void Check(const std::string& dir) {
    const auto input = ReadFile(dir + "quantize.input.f32.bin");
    const auto want = ReadFile(dir + "quantize." + GetParam() + ".bin");
    if (!input || !want) GTEST_SKIP() << "SKIP: no encoder vectors in " << dir;
    EXPECT_EQ(Encode(FindWeightType(std::string(GetParam()))->type, AsFloats(*input)), *want);
  }
};
TEST_P(ExactEncode, SharedVectors) { Check(GoldenDir()); }
TEST_P(ExactEncode, CommittedVectors) {
  ASSERT_TRUE(ReadFile(FixtureDir() + "quantize.input.f32.bin").has_value());
  Check(FixtureDir());
}
INSTANTIATE_TEST_SUITE_P(Types, ExactEncode, testing::ValuesIn(kExact), NameOf);

class SearchedEncode : public testing::TestWithParam<const char*> {
 protected:
  WeightType type() const { return FindWeightType(std::string(GetParam()))->type; }

  // Not worse than llama.cpp's own blocks, over all rows and on no single row.
  void Check(const std::string& dir) {
    const auto input = ReadFile(dir + "quantize.input.f32.bin");
    const auto rival = ReadFile(dir + "quantize." + GetParam() + ".bin");
    if (!input || !rival) GTEST_SKIP() << "SKIP: no encoder vectors in " << dir;
    const std::vector<float> in = AsFloats(*input), ours = RoundTrip(type(), in),
                             theirs = Decode(type(), *rival, in.size());
    EXPECT_LT(RelativeRms(ours, in), RelativeRms(theirs, in));
    for (size_t row = 0; row + 256 <= in.size(); row += 256) {
      const auto cut = [row](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + row, v.begin() + row + 256);
      };
      if (cut(in) == std::vector<float>(256)) continue;
      EXPECT_LE(RelativeRms(cut(ours), cut(in)), RelativeRms(cut(theirs), cut(in)) * 1.01)
          << "row " << row / 256;
    }
  }
};
TEST_P(SearchedEncode, SharedVectors) { Check(GoldenDir()); }
TEST_P(SearchedEncode, CommittedVectors) {
  ASSERT_TRUE(ReadFile(FixtureDir() + "quantize.input.f32.bin").has_value());
  Check(FixtureDir());
}

TEST_P(SearchedEncode, GaussianErrorWithinTheYardstick) {
  const std::string name = GetParam();
  const double limit = name == "Q2_K"   ? 0.265
                       : name == "Q3_K" ? 0.146
                       : name == "Q4_K" ? 0.071
                       : name == "Q5_K" ? 0.0355
                       : name == "Q6_K" ? 0.0172
                                        : 0.075;
  // Magnitudes of real weights, and far from them on both sides.
  for (const float deviation : {1e-2f, 1.0f, 300.0f}) {
    const std::vector<float> in = Noise(11).GaussRow(256 * 64, deviation);
    EXPECT_LT(RelativeRms(RoundTrip(type(), in), in), limit) << "deviation " << deviation;
  }
}

TEST_P(SearchedEncode, ImportanceMovesTheErrorWhereItMatters) {
  const std::vector<float> in = Noise(5).GaussRow(256 * 16);
  std::vector<float> importance(in.size());
  for (size_t i = 0; i < in.size(); ++i) importance[i] = i % 8 == 0 ? 50.0f : 0.01f;
  const auto error = [&](const std::vector<float>& out) {
    double sum = 0;
    for (size_t i = 0; i < in.size(); i += 8) {
      sum += (double(out[i]) - in[i]) * (double(out[i]) - in[i]);
    }
    return sum;
  };
  EXPECT_LT(error(RoundTrip(type(), in, importance.data())), 0.8 * error(RoundTrip(type(), in)));
  // All equal or all zero is no information: the same bytes as without.
  std::fill(importance.begin(), importance.end(), 0.0f);
  EXPECT_EQ(Encode(type(), in, importance.data()), Encode(type(), in));
  std::fill(importance.begin(), importance.end(), 7.5f);
  EXPECT_EQ(Encode(type(), in, importance.data()), Encode(type(), in));
  // Nonsense does no harm.
  importance[3] = std::numeric_limits<float>::quiet_NaN();
  importance[4] = -1;
  EXPECT_LT(RelativeRms(RoundTrip(type(), in, importance.data()), in), 0.5);
}
INSTANTIATE_TEST_SUITE_P(Types, SearchedEncode, testing::ValuesIn(kSearched), NameOf);

class AnyEncode : public testing::TestWithParam<const char*> {
 protected:
  const WeightTypeInfo& info() const { return *FindWeightType(std::string(GetParam())); }
};

TEST_P(AnyEncode, ZerosStayZeros) {
  const std::vector<float> zeros(512);
  EXPECT_EQ(RoundTrip(info().type, zeros), zeros);
}

TEST_P(AnyEncode, BlocksDoNotSeeEachOther) {
  std::vector<float> in = Noise(3).GaussRow(512);
  const std::vector<uint8_t> both = Encode(info().type, in);
  const std::vector<uint8_t> second = Encode(info().type, {in.begin() + 256, in.end()});
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + both.size() / 2));
}

TEST_P(AnyEncode, DecodedBlocksKeepTheirError) {
  // Encoding what a block decodes to loses little more: nothing drifts or flips sign.
  const std::vector<float> in = Noise(9).GaussRow(1024, 0.05f), once = RoundTrip(info().type, in),
                           twice = RoundTrip(info().type, once);
  const double first = RelativeRms(once, in);
  EXPECT_LE(RelativeRms(twice, once), 1.1 * first + 1e-6) << "first pass " << first;
}

TEST_P(AnyEncode, TinyValuesVanishOrStay) {
  for (const float magnitude : {1e-45f, 1e-38f, 1e-20f, 1e-9f, 3e-8f, 6e-8f, 1e-6f, 1e-5f}) {
    const std::vector<float> in = Noise(2).GaussRow(256, magnitude);
    for (const float x : RoundTrip(info().type, in)) {
      ASSERT_TRUE(std::isfinite(x));
      ASSERT_LE(std::fabs(x), 8 * magnitude + 1e-6f) << magnitude;
    }
  }
}

TEST_P(AnyEncode, ConstantsOfEitherSignAreKept) {
  if (info().type == WeightType::kTQ1_0 || info().type == WeightType::kTQ2_0) return;
  for (const float value : {-3.0f, -0.01f, 0.01f, 3.0f}) {
    const std::vector<float> in(256, value);
    // MXFP4 has powers of two for scales and only 4 and 6 on either side of a value.
    const double limit = info().type == WeightType::kMXFP4 ? 0.2 : 0.04;
    EXPECT_LT(RelativeRms(RoundTrip(info().type, in), in), limit) << value;
  }
}

TEST_P(AnyEncode, RefusesWhatABlockCannotHold) {
  const bool plain = info().block_elems == 1;
  std::vector<uint8_t> blocks(RowBytes(info().type, 512).value());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    std::vector<float> in = Noise(4).GaussRow(512);
    in[300] = bad;
    const Status status = EncodeRow(info().type, in.data(), blocks.data(), in.size());
    EXPECT_EQ(status.ok(), plain);
    EXPECT_EQ(status.ToString().find("element 300") != std::string::npos, !plain);
  }
  if (plain || info().type == WeightType::kMXFP4) return;
  for (const float huge : {3e38f, 2e9f}) {
    std::vector<float> in = Noise(4).GaussRow(512);
    in[7] = huge, in[8] = -huge;
    EXPECT_FALSE(EncodeRow(info().type, in.data(), blocks.data(), in.size()).ok()) << huge;
  }
}

TEST_P(AnyEncode, SpikesDoNotBreakTheSearch) {
  for (const float spike : {1e3f, -1e3f, 3e4f, -3e4f}) {
    std::vector<float> in = Noise(8).GaussRow(512, 0.1f);
    in[100] = spike;
    const std::vector<float> out = RoundTrip(info().type, in);
    EXPECT_NEAR(out[100], spike, 0.35f * std::fabs(spike));
    for (const float x : out) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST_P(AnyEncode, RefusesRowsOffTheBlock) {
  if (info().block_elems == 1) return;
  std::vector<float> in(256);
  std::vector<uint8_t> blocks(1024);
  EXPECT_FALSE(EncodeRow(info().type, in.data(), blocks.data(), info().block_elems - 1).ok());
  EXPECT_TRUE(EncodeRow(info().type, in.data(), blocks.data(), 0).ok());
}

INSTANTIATE_TEST_SUITE_P(Types, AnyEncode, testing::ValuesIn(AllEncoders()), NameOf);

TEST(Mxfp4, ScaleFollowsTheRoundedLogarithm) {
  const auto exponent = [](float extreme) {
    std::vector<float> in(32);
    in[5] = extreme;
    return int(Encode(WeightType::kMXFP4, in)[0]);
  };
  EXPECT_EQ(exponent(1.0f), 125);
  EXPECT_EQ(exponent(-1.0f), 125);
  EXPECT_EQ(exponent(std::nextafter(1.0f, 0.0f)), 124);
  EXPECT_EQ(exponent(0x1p20f), 145);
  EXPECT_EQ(exponent(std::nextafter(0x1p20f, 0.0f)), 145);  // its float logarithm is 20
  EXPECT_EQ(exponent(1e-45f), 0);                           // below the range: clamped
  EXPECT_EQ(exponent(std::numeric_limits<float>::max()), 253);
}

TEST(Encode, SignsOfZeroBlocks) {
  std::vector<float> in(32);
  in[31] = -0.0f;
  const auto head = [&in](WeightType type, int bytes) {
    const std::vector<uint8_t> blocks = Encode(type, in);
    return std::vector<uint8_t>(blocks.begin(), blocks.begin() + bytes);
  };
  EXPECT_EQ(head(WeightType::kQ4_0, 3), (std::vector<uint8_t>{0, 0x80, 0x88}));  // 0 / -8
  EXPECT_EQ(head(WeightType::kQ4_1, 5), (std::vector<uint8_t>{0, 0, 0, 0, 0}));
  in[0] = -0.0f;
  EXPECT_EQ(head(WeightType::kQ4_1, 5), (std::vector<uint8_t>{0, 0, 0, 0x80, 0}));
}

TEST(Encode, UnknownEncodersAreRefusedByName) {
  uint8_t block[256];
  float in[256] = {};
  for (const WeightType type : {WeightType::kIQ1_S, WeightType::kIQ3_S, WeightType::kI8}) {
    EXPECT_FALSE(Encodes(type));
    const Status status = EncodeRow(type, in, block, 256);
    EXPECT_EQ(status.code(), Code::kFailed);
    EXPECT_NE(status.ToString().find(InfoOf(type).name), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
