// Hit rates on recorded routing: the reference table, the targets, and no cliff.
#include "memory/policy_replay.h"

#include <gtest/gtest.h>

#include "trace.h"

namespace sluice {
namespace {

using testing::LoadTrace;
using testing::Trace;

constexpr const char* kQwen = "qwen3-30b-a3b.top6.route.csv";
constexpr const char* kGemma = "gemma4-26b-a4b.top6.route.csv";
constexpr const char* kGptOss = "gpt-oss-120b.top2.route.csv";

double HitRate(const Trace& trace, uint32_t slots, const char* policy) {
  auto result = ReplayPolicy(trace.accesses, {trace.layers, trace.experts, slots}, policy);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result->accesses, trace.accesses.size());
  return result->hit_rate();
}

TEST(PolicyReplayTest, ReproducesTheReferenceTable) {
  const auto trace = LoadTrace(kQwen);
  if (!trace) GTEST_SKIP() << "SKIP: no recorded traces (set SLUICE_SHARED)";
  ASSERT_EQ(trace->accesses.size(), 44766u);
  const struct {
    uint32_t slots;
    double lru, decayed, belady;
  } rows[] = {{300, 0.366, 0.340, 0.563},
              {600, 0.483, 0.515, 0.720},
              {900, 0.629, 0.636, 0.800},
              {1200, 0.709, 0.729, 0.849},
              {1500, 0.774, 0.788, 0.880}};
  for (const auto& row : rows) {
    EXPECT_NEAR(HitRate(*trace, row.slots, "lru"), row.lru, 0.0006) << row.slots;
    EXPECT_NEAR(HitRate(*trace, row.slots, "lfu-decay"), row.decayed, 0.0015) << row.slots;
    EXPECT_NEAR(HitRate(*trace, row.slots, "belady"), row.belady, 0.0006) << row.slots;
  }
}

TEST(PolicyReplayTest, TheDefaultMeetsItsTargets) {
  const auto trace = LoadTrace(kQwen);
  if (!trace) GTEST_SKIP() << "SKIP: no recorded traces (set SLUICE_SHARED)";
  EXPECT_GE(HitRate(*trace, 150, kDefaultCachePolicy), 0.23);
  EXPECT_GE(HitRate(*trace, 600, kDefaultCachePolicy), 0.53);
  EXPECT_GE(HitRate(*trace, 900, kDefaultCachePolicy), 0.65);
}

TEST(PolicyReplayTest, TheDefaultIsAtLeastAsGoodAsLruAndOneDecayOnEveryTrace) {
  for (const char* name : {kQwen, kGemma, kGptOss}) {
    const auto trace = LoadTrace(name);
    if (!trace) GTEST_SKIP() << "SKIP: no recorded traces (set SLUICE_SHARED)";
    for (uint32_t slots : {75u, 150u, 300u, 600u, 900u, 1200u}) {
      const double best = HitRate(*trace, slots, kDefaultCachePolicy);
      EXPECT_GE(best, HitRate(*trace, slots, "lru") - 0.002) << name << " " << slots;
      EXPECT_GE(best, HitRate(*trace, slots, "lfu-decay") - 0.002) << name << " " << slots;
      EXPECT_LE(best, HitRate(*trace, slots, "belady")) << name << " " << slots;
    }
  }
}

TEST(PolicyReplayTest, BelowOneCycleThereIsNoCliff) {
  const Trace trace = testing::UniformTrace(12, 32, 4, 200, 2);
  EXPECT_EQ(HitRate(trace, 24, "lru"), 0.0);  // half a cycle: LRU throws away what comes next
  EXPECT_GT(HitRate(trace, 24, kDefaultCachePolicy), 0.02);
}

TEST(PolicyReplayTest, UniformRoutingIsNoWorseThanLru) {
  // With exactly one cycle (160) LRU happens to be the optimum of what cannot be foreseen: 0.0625.
  const Trace trace = testing::UniformTrace(20, 128, 8, 200, 1);
  for (uint32_t slots : {80u, 160u, 400u, 800u, 1600u}) {
    EXPECT_GE(HitRate(trace, slots, kDefaultCachePolicy), HitRate(trace, slots, "lru") - 0.004)
        << slots;
  }
}

TEST(PolicyReplayTest, BeladyOnATraceDoneByHand) {
  // One layer, keys a b c a b, one slot: keep a (hit), let b and c pass.
  const std::vector<RouteAccess> accesses = {{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {3, 0, 0}, {4, 0, 1}};
  EXPECT_EQ(ReplayBelady(accesses, {1, 3, 1}).hits, 1u);
  EXPECT_EQ(ReplayBelady(accesses, {1, 3, 2}).hits, 2u);
  EXPECT_EQ(ReplayBelady(accesses, {1, 3, 0}).hits, 0u);
  EXPECT_EQ(ReplayPolicy(accesses, {1, 3, 1}, "lru")->hits, 0u);
  EXPECT_EQ(ReplayPolicy(accesses, {1, 3, 1}, "nonsense").status().code(), Code::kUsage);
}

TEST(PolicyReplayTest, AGroupNeverEvictsItsOwnMembers) {
  // Three experts per step, two slots: the third is read past the cache.
  const std::vector<RouteAccess> accesses = {{0, 0, 0}, {0, 0, 1}, {0, 0, 2},
                                             {1, 0, 0}, {1, 0, 1}, {1, 0, 2}};
  for (const char* policy : {"lru", "lfu-decay", "dual-decay"}) {
    EXPECT_EQ(ReplayPolicy(accesses, {1, 3, 2}, policy)->hits, 2u) << policy;
  }
}

}  // namespace
}  // namespace sluice
