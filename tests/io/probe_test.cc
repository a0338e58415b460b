#include "io/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "scratch.h"

namespace sluice {
namespace {

TEST(ProbeTest, MeasuresEachDepthInTheTimeGiven) {
  testing::ScratchFile scratch(8 * kMiB);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  BandwidthProbeOptions options;
  options.seconds_max = 0.1;
  options.depths = {1, 4};
  const double start = NowSeconds();
  auto probe = MeasureReadBandwidth(**file, options);
  ASSERT_TRUE(probe.ok()) << probe.status().ToString();
  EXPECT_LT(NowSeconds() - start, 5.0);
  ASSERT_EQ(probe->samples.size(), 2u);
  for (const BandwidthSample& sample : probe->samples) EXPECT_GT(sample.bytes_per_s, 0);
  EXPECT_GE(probe->best_bytes_per_s, probe->samples[0].bytes_per_s);
  EXPECT_TRUE(probe->best_depth == 1 || probe->best_depth == 4);
}

TEST(ProbeTest, FilesSmallerThanARequestAndSparseOnesWork) {
  BandwidthProbeOptions options;
  options.seconds_max = 0.02;
  options.depths = {2};
  testing::ScratchFile small(1000);
  auto file = File::Open(small.path());
  ASSERT_TRUE(MeasureReadBandwidth(**file, options).ok());
  testing::ScratchFile sparse(0);
  ASSERT_EQ(ftruncate(sparse.fd(), 1 << 30), 0);
  ASSERT_EQ(pwrite(sparse.fd(), "x", 1, 700 << 20), 1);
  auto holes = File::Open(sparse.path());
  ASSERT_TRUE(MeasureReadBandwidth(**holes, options).ok());
  testing::ScratchFile empty(0);
  auto nothing = File::Open(empty.path());
  EXPECT_FALSE(MeasureReadBandwidth(**nothing, options).ok());
}

}  // namespace
}  // namespace sluice
