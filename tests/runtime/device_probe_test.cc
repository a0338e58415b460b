#include "runtime/device_probe.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/atomic_file.h"
#include "tests/temp_folder.h"

namespace sluice {
namespace {

class DeviceProbeTest : public testing::Test {
 protected:
  void Plant(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_ / "devices.json",
                                    {reinterpret_cast<const uint8_t*>(text.data()), text.size()})
                    .ok());
  }
  const test::TempFolder folder_;
};

TEST_F(DeviceProbeTest, KeepsOnePerDevice) {
  EXPECT_FALSE(FindDeviceProbe(folder_.path(), "one").has_value());
  ASSERT_TRUE(KeepDeviceProbe(folder_ / "deep/er", "one", {4, 2e9, 1e10}).ok());
  ASSERT_TRUE(KeepDeviceProbe(folder_ / "deep/er", "two", {8, 3e9, 0}).ok());
  ASSERT_TRUE(KeepDeviceProbe(folder_ / "deep/er", "one", {16, 2.5e9, 1e10}).ok());
  const auto one = FindDeviceProbe(folder_ / "deep/er", "one");
  const auto two = FindDeviceProbe(folder_ / "deep/er", "two");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->depth, 16);
  EXPECT_EQ(one->disk_bytes_per_s, 2.5e9);
  EXPECT_EQ(two->depth, 8);
  EXPECT_EQ(two->memory_bytes_per_s, 0);
}

TEST_F(DeviceProbeTest, ADamagedStoreIsAnEmptyOne) {
  for (const char* text :
       {"", "{", "[]", "{\"version\":2,\"devices\":{\"one\":{\"depth\":4,\"disk_bytes_per_s\":1}}}",
        "{\"version\":1,\"devices\":[]}", "{\"version\":1,\"devices\":{\"one\":7}}",
        "{\"version\":1,\"devices\":{\"one\":{\"depth\":0,\"disk_bytes_per_s\":1}}}",
        "{\"version\":1,\"devices\":{\"one\":{\"depth\":1e9,\"disk_bytes_per_s\":1}}}",
        "{\"version\":1,\"devices\":{\"one\":{\"depth\":\"4\",\"disk_bytes_per_s\":1}}}",
        "{\"version\":1,\"devices\":{\"one\":{\"depth\":4,\"disk_bytes_per_s\":-1}}}"}) {
    Plant(text);
    EXPECT_FALSE(FindDeviceProbe(folder_.path(), "one").has_value()) << text;
    ASSERT_TRUE(KeepDeviceProbe(folder_.path(), "one", {4, 1e9, 0}).ok()) << text;
    EXPECT_TRUE(FindDeviceProbe(folder_.path(), "one").has_value()) << text;
  }
}

TEST_F(DeviceProbeTest, WithoutAFolderNothingIsKept) {
  EXPECT_TRUE(KeepDeviceProbe("", "one", {4, 1e9, 0}).ok());
  EXPECT_FALSE(FindDeviceProbe("", "one").has_value());
  EXPECT_FALSE(KeepDeviceProbe("/proc/sluice-no-such", "one", {4, 1e9, 0}).ok());
}

TEST_F(DeviceProbeTest, FilesOfOneDeviceShareAKey) {
  Plant("x");
  auto a = File::Open(folder_ / "devices.json");
  auto b = File::Open(std::string(SLUICE_SOURCE_DIR) + "/README.md");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_FALSE(DeviceKey(**a, IoBackend::kAuto).empty());
  EXPECT_EQ(DeviceKey(**a, IoBackend::kAuto), DeviceKey(**a, IoBackend::kAuto));
  EXPECT_NE(DeviceKey(**a, IoBackend::kAuto), DeviceKey(**a, IoBackend::kPread));
}

}  // namespace
}  // namespace sluice
