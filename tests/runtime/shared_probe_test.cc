#include "runtime/shared_probe.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cpu.h"
#include "io/atomic_file.h"
#include "kernels/ops.h"
#include "tests/temp_folder.h"

namespace sluice {
namespace {

// 4 GB/s of disk, 40 GB/s of memory.
constexpr double kRead = 4e9, kTouched = 40e9;

TEST(SharedProbe, FreeOverlapIsTheSlowerOfTheTwo) {
  const MachineRates free{4e9, 40e9, 4e9, 40e9};
  EXPECT_DOUBLE_EQ(SecondsPerToken(free, kRead, kTouched), 1.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken(free, 2 * kRead, kTouched), 2.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken(free, kRead, 3 * kTouched), 3.0);
}

TEST(SharedProbe, TogetherThenTheRestAlone) {
  // Half the disk and three quarters of the memory at once: 4 GB take 2 s, in which 60 GB pass.
  const MachineRates rates{4e9, 40e9, 2e9, 30e9};
  EXPECT_DOUBLE_EQ(SecondsPerToken(rates, kRead, 60e9), 2.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken(rates, kRead, 100e9), 3.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken(rates, 2 * kRead, 60e9), 3.0);
}

TEST(SharedProbe, WorthlessOverlapIsNotDone) {
  const MachineRates rates{4e9, 40e9, 1e9, 10e9};
  EXPECT_DOUBLE_EQ(SecondsPerToken(rates, kRead, kTouched), 2.0);
}

TEST(SharedProbe, WhatIsUnknown) {
  EXPECT_EQ(SecondsPerToken({}, kRead, kTouched), 0.0);
  EXPECT_EQ(SecondsPerToken({0, 40e9, 0, 0}, kRead, kTouched), 0.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken({0, 40e9, 0, 0}, 0, kTouched), 1.0);
  EXPECT_DOUBLE_EQ(SecondsPerToken({4e9, 40e9, 0, 0}, kRead, kTouched), 2.0);
}

TEST(SharedProbe, MeasuresBothAtOnce) {
  const test::TempFolder folder;
  const std::string path = folder / "file";
  const std::vector<uint8_t> bytes(8 * kMiB, 7);
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  const Result<std::unique_ptr<File>> file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const std::vector<uint8_t> memory(16 * kMiB, 1);
  ThreadPool pool(2);
  BandwidthProbeOptions disk;
  disk.depths = {4};
  MachineRates rates{1, 2};
  const Status status =
      MeasureTogether(**file, disk, memory, &pool, AvailableIsas().front(), &rates);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_GT(rates.disk_shared, 0);
  EXPECT_GT(rates.memory_shared, 0);
  EXPECT_EQ(rates.disk, 1);
  EXPECT_EQ(rates.memory, 2);
}

}  // namespace
}  // namespace sluice
