// The int8 copy of the routers: planned, counted, as good a guess as the exact weights, and without
// a trace in the logits.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/cpu.h"
#include "tests/gates/engine_gate.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

struct Answer {
  Plan plan;
  Stats stats;
};

uint64_t LineOf(const Plan& plan, const std::string& tag) {
  for (const PlanLine& line : plan.lines) {
    if (line.tag == tag) return line.bytes;
  }
  return 0;
}

Answer Ask(const std::string& path, int64_t slots, int lookahead, ActType act = ActType::kAuto) {
  Answer answer;
  EngineOptions o = test::GateOptions(256);
  o.expert_slots = slots;
  o.lookahead = lookahead;
  o.act = act;
  const std::unique_ptr<Engine> engine = test::OpenEngine(path, o);
  if (engine == nullptr) return answer;
  const auto session = Session::Create(engine.get());
  EXPECT_TRUE((*session)->Append(std::vector<TokenId>{1, 2, 3}).ok());
  for (TokenId i = 0; i < 60; ++i) {
    const TokenId id = (i * 37 + 5) % 640;
    EXPECT_TRUE((*session)->Append({&id, 1}).ok());
  }
  answer.plan = engine->plan();
  answer.stats = engine->stats();
  return answer;
}

TEST(RouterCopy, IsPlannedOnlyWhereItCanBeOfUse) {
  const testing::TempFolder folder;
  const std::string path = folder / "model.gguf";
  ASSERT_TRUE(Forge(testing::Tiny("qwen3-30b-a3b"), path).ok());
  EngineOptions o;
  o.need_text = false;
  o.context = 64;
  const auto copy = [&](int64_t slots, int lookahead) {
    o.expert_slots = slots;
    o.lookahead = lookahead;
    const Result<Plan> plan = Engine::PlanFor(path, o);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan.ok() ? LineOf(*plan, "router copy") : 0;
  };
  const uint64_t least = 3 * 16 * 256 / 32 * 34;  // 3 layers, 16 experts, hidden 256
  EXPECT_GE(copy(20, -1), least);
  EXPECT_LT(copy(20, -1), least + 2048 + PageBytes());
  EXPECT_EQ(copy(20, 1), copy(20, -1));
  EXPECT_EQ(copy(20, 0), 0u);
  EXPECT_EQ(copy(0, 1), 0u) << "no slot to read ahead into";
  EXPECT_EQ(copy(-1, 1), 0u) << "all experts stay";
}

// With all experts resident there is no copy and the guess uses the exact weights.
TEST(RouterCopy, GuessesAsWellAsTheExactRouters) {
  const testing::TempFolder folder;
  for (const char* shape : {"qwen3-30b-a3b", "gpt-oss-20b", "olmoe-7b"}) {
    const std::string path = folder / "model.gguf";
    ForgeOptions o = testing::Tiny(shape);
    o.overrides.layers = 4;
    ASSERT_TRUE(Forge(o, path).ok());
    for (const ActType act : {ActType::kQ8, ActType::kQ16}) {
      const Answer exact = Ask(path, -1, 1, act), copied = Ask(path, 63, 1, act);
      ASSERT_EQ(LineOf(exact.plan, "router copy"), 0u);
      ASSERT_GT(LineOf(copied.plan, "router copy"), 0u);
      EXPECT_GT(exact.stats.lookahead_accuracy, 0.5) << shape;
      EXPECT_NEAR(copied.stats.lookahead_accuracy, exact.stats.lookahead_accuracy, 0.01) << shape;
      EXPECT_EQ(copied.stats.logits_hash, exact.stats.logits_hash) << shape;
      ::testing::Test::RecordProperty(std::string(shape) + std::to_string(static_cast<int>(act)),
                                      std::to_string(exact.stats.lookahead_accuracy) + " " +
                                          std::to_string(copied.stats.lookahead_accuracy));
    }
  }
}

}  // namespace
}  // namespace sluice
