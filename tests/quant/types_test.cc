// The table of types, row sizes, half and bfloat16 conversions.
#include "quant/types.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "quant_test_util.h"

namespace sluice {
namespace {

TEST(WeightTypes, SizesAreGgmls) {
  struct Row {
    uint32_t id;
    const char* name;
    uint32_t elems, bytes;
  };
  const Row rows[] = {
      {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
      {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
      {8, "Q8_0", 32, 34},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
      {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
      {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},
      {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
      {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},
      {25, "I16", 1, 2},        {26, "I32", 1, 4},        {27, "I64", 1, 8},
      {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},
      {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
  };
  for (const Row& row : rows) {
    const WeightTypeInfo* info = FindWeightType(row.id);
    ASSERT_NE(info, nullptr) << row.id;
    EXPECT_EQ(uint32_t(info->type), row.id);
    EXPECT_STREQ(info->name, row.name);
    EXPECT_EQ(info->block_elems, row.elems) << row.name;
    EXPECT_EQ(info->block_bytes, row.bytes) << row.name;
    EXPECT_EQ(FindWeightType(std::string_view(row.name)), info);
    EXPECT_EQ(&InfoOf(info->type), info);
    EXPECT_STREQ(KnownTypeName(row.id), row.name);
  }
  EXPECT_EQ(FindWeightType("q4_k"), FindWeightType(12));
  EXPECT_EQ(FindWeightType("Q4_K_M"), nullptr);
  EXPECT_EQ(FindWeightType(""), nullptr);
}

TEST(WeightTypes, UnknownAndRetiredIdsHaveNoEntryButMaybeAName) {
  for (const uint32_t id : {4u, 5u, 9u, 15u, 31u, 32u, 33u, 36u, 37u, 38u, 40u, 41u}) {
    EXPECT_EQ(FindWeightType(id), nullptr) << id;
    EXPECT_STRNE(KnownTypeName(id), "?") << id;
  }
  EXPECT_STREQ(KnownTypeName(40), "NVFP4");
  EXPECT_STREQ(KnownTypeName(41), "Q1_0");
  for (const uint32_t id : {42u, 47u, 48u, 200u, 0xFFFFFFFFu}) {
    EXPECT_EQ(FindWeightType(id), nullptr) << id;
    EXPECT_STREQ(KnownTypeName(id), "?") << id;
  }
}

TEST(WeightTypes, RowBytesRefusesPartialBlocksAndOverflow) {
  EXPECT_EQ(RowBytes(WeightType::kQ4_K, 512), 288u);
  EXPECT_EQ(RowBytes(WeightType::kQ4_K, 0), 0u);
  EXPECT_EQ(RowBytes(WeightType::kQ4_K, 511), std::nullopt);
  EXPECT_EQ(RowBytes(WeightType::kQ8_0, 33), std::nullopt);
  EXPECT_EQ(RowBytes(WeightType::kF64, uint64_t{1} << 61), std::nullopt);
  EXPECT_EQ(RowBytes(WeightType::kF16, (uint64_t{1} << 63) - 1), UINT64_MAX - 1);
}

TEST(Half, EveryPatternMatchesItsDefinition) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(uint16_t(bits));
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      // Payload and sign are carried over.
      EXPECT_EQ(std::bit_cast<uint32_t>(value) & 0x807FFFFF,
                (bits & 0x8000) << 16 | uint32_t(mantissa) << 13);
      continue;
    }
    double want = exponent == 31  ? std::numeric_limits<double>::infinity()
                  : exponent == 0 ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
    if (bits & 0x8000) want = -want;
    ASSERT_EQ(double(value), want) << bits;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000);
    ASSERT_EQ(FloatToHalf(value), bits);
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float a = HalfToFloat(uint16_t(bits)), b = HalfToFloat(uint16_t(bits + 1));
    const float middle = float((double(a) + b) / 2);  // exact: one more mantissa bit
    const uint32_t even = bits & 1 ? bits + 1 : bits;
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(-middle), 0x8000 | even) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, a)), bits) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, b)), bits + 1) << bits;
  }
  EXPECT_EQ(FloatToHalf(65504), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520), 0x7C00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xFC00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(FloatToHalf(std::bit_cast<float>(0x7F800001u)) & 0x7E00, 0x7E00);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7F800001u)), 0x7FC0);
  EXPECT_EQ(FloatToBf16(-0.0f), 0x8000);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Bf16ToFloat(uint16_t(bits));
    const bool is_signalling = std::isnan(value) && !(bits & 0x40);
    ASSERT_EQ(FloatToBf16(value), is_signalling ? bits | 0x40 : bits);
  }
}

// Scales no encoder writes but a file may hold.
TEST(Decode, OddScalesFollowIeee) {
  const auto q8 = [](uint16_t scale, int8_t q) {
    uint8_t block[34] = {uint8_t(scale), uint8_t(scale >> 8), uint8_t(q)};
    float out[32];
    DecodeRow(WeightType::kQ8_0, block, out, 32);
    return out[0];
  };
  EXPECT_EQ(q8(0x0001, -128), -0x1p-17f);  // the smallest subnormal half
  EXPECT_EQ(q8(0x83FF, 1), -1023 * 0x1p-24f);
  EXPECT_EQ(q8(0x7C00, -1), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(q8(0x7C00, 0)));
  EXPECT_TRUE(std::isnan(q8(0x7E01, 5)));
  EXPECT_TRUE(std::signbit(q8(0x8000, 5)));
  EXPECT_EQ(q8(0x7BFF, 127), 65504.0f * 127);

  const auto mx = [](uint8_t e, uint8_t q) {
    uint8_t block[17] = {e, q};
    float out[32];
    DecodeRow(WeightType::kMXFP4, block, out, 32);
    return out[0];
  };
  EXPECT_EQ(mx(0, 1), 0x1p-128f);
  EXPECT_EQ(mx(1, 15), -12 * 0x1p-127f);
  EXPECT_EQ(mx(127, 7), 6.0f);
  EXPECT_EQ(mx(255, 1), 0x1p127f);
  EXPECT_EQ(mx(255, 7), std::numeric_limits<float>::infinity());
  EXPECT_FALSE(std::signbit(mx(127, 8)));
}

TEST(Decode, PlainFloatsKeepEveryBit) {
  const uint32_t patterns[] = {0x7F800001, 0xFFC12345, 0x00000001, 0x80000000, 0x7F800000};
  uint8_t bytes[sizeof patterns];
  std::memcpy(bytes, patterns, sizeof patterns);
  float out[5];
  DecodeRow(WeightType::kF32, bytes, out, 5);
  EXPECT_EQ(std::memcmp(out, patterns, sizeof patterns), 0);
  const uint16_t halves[] = {0x7C01, 0xFE00, 0x0001, 0x8000};  // a signalling NaN first
  const uint32_t want[] = {0x7F802000, 0xFFC00000, 0x33800000, 0x80000000};
  DecodeRow(WeightType::kF16, reinterpret_cast<const uint8_t*>(halves), out, 4);
  EXPECT_EQ(std::memcmp(out, want, sizeof want), 0);
  const uint32_t want_bf16[] = {0x7C010000, 0xFE000000, 0x00010000, 0x80000000};
  DecodeRow(WeightType::kBF16, reinterpret_cast<const uint8_t*>(halves), out, 4);
  EXPECT_EQ(std::memcmp(out, want_bf16, sizeof want_bf16), 0);
}

// Any bytes decode without reading or writing outside (run under the address sanitizer).
TEST(Decode, RandomBlocksStayInBounds) {
  quant_test::Noise noise(77);
  for (uint32_t id = 0; id < 48; ++id) {
    const WeightTypeInfo* info = FindWeightType(id);
    if (info == nullptr || !info->decodes) continue;
    for (int k = 0; k < 50; ++k) {
      std::vector<uint8_t> block(info->block_bytes);
      for (uint8_t& b : block) b = uint8_t(noise.Bits());
      std::vector<float> out(info->block_elems + 1, 12345.0f);
      DecodeRow(info->type, block.data(), out.data(), info->block_elems);
      ASSERT_EQ(out.back(), 12345.0f) << info->name;
    }
  }
}

}  // namespace
}  // namespace sluice
