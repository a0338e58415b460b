// How a region is cut: every row once, and the cost of slow cores in a played-through schedule.
#include "model/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace sluice {
namespace {

PartList Cut(const std::vector<PartJob>& jobs, int threads, uint32_t grain = 8,
             uint64_t bytes_min = 8192) {
  return PartList(jobs, threads, grain, bytes_min);
}

TEST(Parts, CoverEveryRowOnceInOrder) {
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<PartJob> jobs(1 + rng() % PartList::kJobsMax);
    for (PartJob& job : jobs) {
      job.rows = rng() % 5 == 0 ? rng() % 10 : rng() % 4000;
      job.row_bytes = rng() % 20 == 0 ? 0 : 1 + rng() % 5000;
    }
    const int threads = 1 + static_cast<int>(rng() % 256);
    const uint32_t grain = 1 + rng() % 16;
    const PartList parts = Cut(jobs, threads, grain, rng() % 20000);
    uint32_t at = 0;
    for (uint32_t j = 0; j < jobs.size(); ++j) {
      for (uint32_t row = 0; row < jobs[j].rows; ++at) {
        ASSERT_LT(at, parts.size());
        ASSERT_EQ(parts[at].job, j);
        ASSERT_EQ(parts[at].begin, row);
        ASSERT_GT(parts[at].end, row);
        row = parts[at].end;
        ASSERT_LE(row, jobs[j].rows);
        ASSERT_TRUE(row == jobs[j].rows || row % grain == 0);
      }
    }
    ASSERT_EQ(at, parts.size());
  }
}

TEST(Parts, FewAndShrinking) {
  const PartList parts = Cut({{6144, 1152}}, 2);
  EXPECT_LE(parts.size(), 18u);
  for (uint32_t i = 1; i < parts.size(); ++i)
    EXPECT_LE(parts[i].end - parts[i].begin, parts[i - 1].end - parts[i - 1].begin + 8);
  EXPECT_LE(parts[0].end, 6144u / 6 + 8);
  // Too little to share, and nothing.
  EXPECT_EQ(Cut({{16, 100}}, 4).size(), 1u);
  EXPECT_EQ(Cut({{0, 100}, {0, 0}}, 4).size(), 0u);
  // The largest machine and the largest head stay within the list.
  EXPECT_LE(Cut({{1u << 22, 4096}}, 256).size(), 600u);
}

// Threads of the given speeds claim parts in order; the time of the last over the ideal time.
double Overhead(const PartList& parts, const std::vector<double>& speeds) {
  std::vector<double> free_at(speeds.size());
  double total = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const double work = parts[i].end - parts[i].begin;
    const auto next = std::min_element(free_at.begin(), free_at.end()) - free_at.begin();
    free_at[static_cast<size_t>(next)] += work / speeds[static_cast<size_t>(next)];
    total += work;
  }
  return *std::max_element(free_at.begin(), free_at.end()) *
         std::accumulate(speeds.begin(), speeds.end(), 0.0) / total;
}

TEST(Parts, SlowCoresCostLittle) {
  double worst = 0, sum = 0;
  int n = 0;
  for (const int threads : {2, 3, 4, 6, 8}) {
    const PartList parts = Cut({{24576, 1152}}, threads);
    for (int slow = 0; slow < threads; ++slow) {
      for (const double ratio : {1.5, 2.0, 2.5, 3.0, 4.0}) {
        for (const bool slow_first : {false, true}) {
          std::vector<double> speeds(static_cast<size_t>(threads), 1);
          for (int i = 0; i < slow; ++i)
            speeds[static_cast<size_t>(slow_first ? i : threads - 1 - i)] = 1 / ratio;
          const double overhead = Overhead(parts, speeds);
          EXPECT_LT(overhead, 1.3) << threads << " threads, " << slow << " slower by " << ratio;
          worst = std::max(worst, overhead);
          sum += overhead;
          ++n;
        }
      }
    }
  }
  EXPECT_LT(sum / n, 1.08);
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("mean", std::to_string(sum / n));
}

}  // namespace
}  // namespace sluice
