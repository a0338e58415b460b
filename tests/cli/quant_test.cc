// `sluice quant` on the reference vectors, and its outputs that appear whole or not at all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace sluice::test {
namespace {

const char* const kTypes[] = {"Q4_0",   "Q4_1",   "Q5_0",  "Q5_1",  "Q8_0", "Q2_K",
                              "Q3_K",   "Q4_K",   "Q5_K",  "Q6_K",  "F16",  "BF16",
                              "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0", "TQ2_0"};

TEST(Quant, DecodesTheReferenceBlocksBitForBit) {
  if (Shared("golden/quants").empty()) GTEST_SKIP() << "SKIP: no golden/quants";
  TempFolder dir;
  int done = 0;
  for (const char* type : kTypes) {
    const std::string blocks = Shared(std::string("golden/quants/") + type + ".blocks.bin");
    const std::string values = Shared(std::string("golden/quants/") + type + ".f32.bin");
    if (blocks.empty() || values.empty()) continue;
    const ProcessResult result =
        Sluice({"quant", "decode", "--type", type, blocks, dir / "out.bin"});
    ASSERT_EQ(result.code, 0) << type << ": " << result.err;
    EXPECT_EQ(result.out + result.err, "") << type;
    EXPECT_TRUE(ReadFile(dir / "out.bin") == ReadFile(values)) << type;
    ++done;
  }
  EXPECT_GE(done, 10);
}

// Types with one right answer give the reference bytes; the searched ones may differ but not be
// worse.
TEST(Quant, EncodesTheReferenceInput) {
  const std::string input = Shared("golden/quants/quantize.input.f32.bin");
  if (input.empty()) GTEST_SKIP() << "SKIP: no golden/quants";
  const auto index = nlohmann::json::parse(ReadFile(Shared("golden/quants/index.json")));
  const std::string raw = ReadFile(input);
  std::vector<float> want(raw.size() / 4);
  std::memcpy(want.data(), raw.data(), raw.size());
  TempFolder dir;
  for (const auto& [type, about] : index["quantize"].items()) {
    const ProcessResult result = Sluice({"quant", "encode", "--type", type, input, dir / "blocks"});
    ASSERT_EQ(result.code, 0) << type << ": " << result.err;
    const std::string blocks = ReadFile(dir / "blocks");
    EXPECT_EQ(blocks.size(), about["bytes"].get<size_t>()) << type;
    if (!about.contains("relative_rms_error")) {
      const std::string reference = Shared("golden/quants/quantize." + type + ".bin");
      EXPECT_TRUE(blocks == ReadFile(reference)) << type;
      continue;
    }
    ASSERT_EQ(Sluice({"quant", "decode", "--type", type, dir / "blocks", dir / "back"}).code, 0);
    const std::string back_raw = ReadFile(dir / "back");
    ASSERT_EQ(back_raw.size(), raw.size());
    std::vector<float> back(want.size());
    std::memcpy(back.data(), back_raw.data(), back_raw.size());
    double error = 0, power = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += (back[i] - want[i]) * double(back[i] - want[i]);
      power += want[i] * double(want[i]);
    }
    EXPECT_LE(std::sqrt(error / power), about["relative_rms_error"].get<double>() * 1.05) << type;
  }
}

TEST(Quant, ErrorsLeaveNothingBehind) {
  TempFolder dir;
  WriteFile(dir / "odd", std::string(19, 'x'));
  const ProcessResult odd = Sluice({"quant", "decode", "--type", "Q4_0", dir / "odd", dir / "out"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.err.find("19 bytes"), std::string::npos) << odd.err;
  EXPECT_NE(odd.err.find("18"), std::string::npos) << odd.err;

  // A failure keeps an older output as it was.
  WriteFile(dir / "out", "older");
  const float values[32] = {NAN};
  WriteFile(dir / "nan", std::string(reinterpret_cast<const char*>(values), sizeof values));
  const ProcessResult nan = Sluice({"quant", "encode", "--type", "Q4_0", dir / "nan", dir / "out"});
  EXPECT_NE(nan.code, 0);
  EXPECT_EQ(ReadFile(dir / "out"), "older");

  EXPECT_EQ(Sluice({"quant", "decode", "--type", "Q4_0", dir / "odd", dir.path()}).code, 2);
  const std::string nowhere = dir / "missing/out";
  EXPECT_EQ(Sluice({"quant", "decode", "--type", "Q4_0", dir / "odd", nowhere}).code, 2);
  WriteFile(dir / "even", std::string(18, 'x'));
  EXPECT_EQ(Sluice({"quant", "decode", "--type", "Q4_0", dir / "even", nowhere}).code, 5);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++files;
  EXPECT_EQ(files, 4u);  // odd, out, nan, even
}

TEST(Quant, EmptyInputGivesEmptyOutput) {
  TempFolder dir;
  WriteFile(dir / "in", "");
  EXPECT_EQ(Sluice({"quant", "decode", "--type", "Q6_K", dir / "in", dir / "out"}).code, 0);
  EXPECT_TRUE(Exists(dir / "out"));
  EXPECT_EQ(ReadFile(dir / "out"), "");
}

TEST(Quant, DevicesAreWrittenDirectly) {
  TempFolder dir;
  WriteFile(dir / "in", std::string(18, '\0'));
  EXPECT_EQ(Sluice({"quant", "decode", "--type", "Q4_0", dir / "in", "/dev/null"}).code, 0);
  EXPECT_TRUE(Exists("/dev/null"));
  if (!Exists("/dev/full")) return;
  const ProcessResult full = Sluice({"quant", "decode", "--type", "Q4_0", dir / "in", "/dev/full"});
  EXPECT_EQ(full.code, 5);
  EXPECT_NE(full.err.find("/dev/full"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace sluice::test
