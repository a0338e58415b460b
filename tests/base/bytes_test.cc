#include "base/bytes.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ParseSize, PlainAndUnits) {
  EXPECT_EQ(ParseSize("4096"), 4096u);
  EXPECT_EQ(ParseSize("0"), 0u);
  EXPECT_EQ(ParseSize("72M"), 72 * kMiB);
  EXPECT_EQ(ParseSize("3G"), 3 * kGiB);
  EXPECT_EQ(ParseSize("3g"), 3 * kGiB);
  EXPECT_EQ(ParseSize("3GB"), 3 * kGiB);
  EXPECT_EQ(ParseSize("3GiB"), 3 * kGiB);
  EXPECT_EQ(ParseSize("2T"), 2048 * kGiB);
  EXPECT_EQ(ParseSize("512B"), 512u);
}

TEST(ParseSize, Fractions) {
  EXPECT_EQ(ParseSize("1.5G"), kGiB + kGiB / 2);
  EXPECT_EQ(ParseSize("0.25K"), 256u);
  EXPECT_EQ(ParseSize("1.000000999K"), 1024u);
}

TEST(ParseSize, Refuses) {
  for (const char* text :
       {"", "G", "-1", "+1", "1.5", "1.G", ".5G", "1 G", "1GG", "1Gib ", "1X", "0x10", "1e3",
        "18446744073709551616", "18446744073709551615K", "99999999999T", "1.2.3M", "auto"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
}

TEST(ParseSize, LargestIsExact) { EXPECT_EQ(ParseSize("18446744073709551615"), UINT64_MAX); }

TEST(FormatBytes, RoundsIntoTheNextUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(75497472), "72.0 MiB");
  EXPECT_EQ(FormatBytes(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(kGiB + kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
}

TEST(Checked, OverflowIsSeen) {
  EXPECT_EQ(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(CheckedMul(uint64_t{1} << 31, uint64_t{1} << 32), uint64_t{1} << 63);
  EXPECT_EQ(CheckedAdd(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(AlignUp(4097, 4096), 8192u);
  EXPECT_EQ(AlignDown(4097, 4096), 4096u);
}

}  // namespace
}  // namespace sluice
