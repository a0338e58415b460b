#include "runtime/lookahead_trial.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr uint32_t kTrial = LookaheadTrial::kBlockTokens * LookaheadTrial::kBlocks;

// Runs one trial and returns its verdict; on and off are the times of a token.
bool Verdict(LookaheadTrial* trial, double on, double off) {
  for (uint32_t i = 0; i < kTrial; ++i) trial->Add(trial->on() ? on : off);
  return trial->on();
}

TEST(LookaheadTrialTest, TriesBothWaysEquallyOften) {
  LookaheadTrial trial;
  uint32_t on = 0;
  for (uint32_t i = 0; i < kTrial; ++i) {
    on += trial.on() ? 1 : 0;
    trial.Add(1);
  }
  EXPECT_EQ(on, kTrial / 2);
  EXPECT_FALSE(trial.on()) << "a draw reads less";
}

TEST(LookaheadTrialTest, TheFasterWayIsKeptAndTriedAgain) {
  LookaheadTrial trial;
  EXPECT_TRUE(Verdict(&trial, 0.9, 1.0));
  for (uint32_t i = 0; i < LookaheadTrial::kKeepTokens; ++i) {
    EXPECT_TRUE(trial.on());
    trial.Add(5);
  }
  EXPECT_FALSE(Verdict(&trial, 1.1, 1.0));
  EXPECT_EQ(trial.trials(), 2u);
}

TEST(LookaheadTrialTest, AFewSlowTokensDecideNothing) {
  LookaheadTrial trial;
  for (uint32_t i = 0; i < kTrial; ++i) {
    const bool hiccup = i == 5 || i == 13;  // both while it was on
    trial.Add(hiccup ? 100 : trial.on() ? 0.9 : 1.0);
  }
  EXPECT_TRUE(trial.on());
}

}  // namespace
}  // namespace sluice
