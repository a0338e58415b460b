// The operations of a token, counted by hand, and the loop that says how many are possible.
#include "runtime/int8_work.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "kernels/peak.h"

namespace sluice {
namespace {

MatrixSpec Spec(WeightType type, uint32_t rows, uint32_t cols) {
  MatrixSpec m;
  m.type = type;
  m.rows = rows;
  m.cols = cols;
  m.extent.bytes = 1;
  return m;
}

ModelMap TwoLayers() {
  ModelMap map;
  map.config.moe.used = 3;
  map.config.moe.experts = 8;
  map.head = Spec(WeightType::kQ6_K, 1000, 256);
  map.layers.resize(2);
  const auto set = [&](uint32_t layer, MatrixRole role, MatrixSpec m) {
    map.layers[layer].matrix[static_cast<size_t>(role)] = std::move(m);
  };
  set(0, MatrixRole::kQ, Spec(WeightType::kQ4_K, 512, 256));
  set(0, MatrixRole::kK, Spec(WeightType::kQ8_0, 64, 256));
  set(1, MatrixRole::kRouter, Spec(WeightType::kF32, 8, 256));      // multiplies floats
  set(1, MatrixRole::kSharedUp, Spec(WeightType::kBF16, 96, 256));  // so does this
  ExpertSpec experts;
  experts.part[0].first = Spec(WeightType::kMXFP4, 128, 256);  // gate and up in one
  experts.part[2].first = Spec(WeightType::kMXFP4, 256, 64);
  map.layers[1].experts = experts;
  return map;
}

TEST(Int8Work, CountsWhatATokenMultiplies) {
  const ModelMap map = TwoLayers();
  const Int8Work one = Int8WorkOf(map, 1);
  EXPECT_EQ(one.per_token, 2u * (512 * 256 + 64 * 256 + 3 * (128 * 256 + 256 * 64)));
  EXPECT_EQ(one.per_logits, 2u * 1000 * 256);
  const Int8Work two = Int8WorkOf(map, 2);
  EXPECT_EQ(two.per_token, 2 * one.per_token);
  EXPECT_EQ(two.per_logits, 2 * one.per_logits);
  const Int8Work floats = Int8WorkOf(map, 0);
  EXPECT_EQ(floats.per_token + floats.per_logits, 0u);
}

// Operations of all threads over the time it took: a loop that is known to take a millisecond.
uint64_t SlowLoop(uint64_t rounds) {
  const uint64_t until = NowNanos() + 100'000 * rounds;
  while (NowNanos() < until) continue;
  return 1000 * rounds;
}

TEST(Int8Work, MeasuresAllThreadsOfThePool) {
  EXPECT_EQ(MeasureOperations(nullptr, nullptr, 0.01), 0);
  ThreadPool one(1), two(2);
  // 1000 operations in at least 0.1 ms: 1e7 per second and thread, less where threads wait.
  const double alone = MeasureOperations(SlowLoop, &one, 0.02);
  EXPECT_LE(alone, 1.001e7);
  EXPECT_GT(alone, 0.1e7);
  const double both = MeasureOperations(SlowLoop, &two, 0.02);
  EXPECT_LE(both, 2.002e7);
  EXPECT_GT(both, 0.2e7);  // busy machine: each loop ends by the clock even so
}

}  // namespace
}  // namespace sluice
