// Decoders against the shared golden vectors and the committed first blocks of each, bit for bit.
#include <gtest/gtest.h>

#include "quant/types.h"
#include "quant_test_util.h"

namespace sluice {
namespace {

using quant_test::AsFloats;
using quant_test::FixtureDir;
using quant_test::GoldenDir;
using quant_test::ReadFile;

// Types whose grids come from a package at configure time: absent without it.
bool IsCodebook(const std::string& name) {
  return name.rfind("IQ", 0) == 0 && name.rfind("IQ4", 0) != 0;
}

constexpr const char* kGoldenTypes[] = {
    "F16",   "BF16",  "Q4_0",  "Q4_1",  "Q5_0",   "Q5_1",    "Q8_0",  "Q2_K",
    "Q3_K",  "Q4_K",  "Q5_K",  "Q6_K",  "IQ4_NL", "IQ4_XS",  "MXFP4", "TQ1_0",
    "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS",
};

class GoldenDecode : public testing::TestWithParam<const char*> {
 protected:
  void Check(const std::string& dir) {
    const std::string name = GetParam();
    const auto blocks = ReadFile(dir + name + ".blocks.bin"),
               want = ReadFile(dir + name + ".f32.bin");
    if (!blocks || !want) GTEST_SKIP() << "SKIP: no golden vectors of " << name << " in " << dir;
    const WeightTypeInfo* info = FindWeightType(name);
    ASSERT_NE(info, nullptr) << name;
    if (!info->decodes && IsCodebook(name)) {
      GTEST_SKIP() << "SKIP: " << name
                   << " was built without its codebook (see docs/weight-types.md)";
    }
    ASSERT_TRUE(info->decodes) << name;
    const size_t n = want->size() / sizeof(float);
    ASSERT_GT(n, 0u);
    ASSERT_EQ(RowBytes(info->type, n), blocks->size());
    // At every misalignment a mapped file may have.
    for (size_t shift = 0; shift < 4; ++shift) {
      std::vector<uint8_t> moved(blocks->size() + shift);
      std::memcpy(moved.data() + shift, blocks->data(), blocks->size());
      std::vector<float> got(n);
      DecodeRow(info->type, moved.data() + shift, got.data(), n);
      const std::vector<float> expected = AsFloats(*want);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
            << name << " element " << i << ": " << got[i] << " is not " << expected[i];
      }
    }
  }
};

TEST_P(GoldenDecode, SharedVectors) { Check(GoldenDir()); }

TEST_P(GoldenDecode, CommittedBlocks) {
  const std::string name = GetParam();
  ASSERT_TRUE(ReadFile(FixtureDir() + name + ".blocks.bin").has_value()) << "fixture of " << name;
  Check(FixtureDir());
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenDecode, testing::ValuesIn(kGoldenTypes),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace sluice
