// Promise 2: the budget never changes the answer. Logits are compared bit for bit.
#include <filesystem>

#include "tests/gates/engine_gate.h"

namespace sluice {
namespace {

struct Outcome {
  std::string hash;
  Plan plan;
  Stats stats;
};

// Every row of a prompt and a few decoded tokens, as one hash.
Outcome RunModel(const std::string& path, const EngineOptions& options, uint32_t prompt,
                 uint32_t decode) {
  Outcome out;
  const auto engine = test::OpenEngine(path, options);
  if (engine == nullptr) return out;
  const auto session = Session::Create(engine.get());
  test::Go(session->get(), test::Text(prompt, engine->vocab_size(), 0), decode);
  out.plan = engine->plan();
  out.stats = engine->stats();
  out.hash = out.stats.logits_hash;
  return out;
}

EngineOptions Base() { return test::GateOptions(512); }

// The default model: resident, half, and the floor; threads; backends; chunks.
TEST(DenseIdentity, BudgetsThreadsBackendsAndChunks) {
  const std::string model = test::DefaultModelPath();
  if (!std::filesystem::exists(model))
    GTEST_SKIP() << "SKIP: no default model at " << model << "; run tools/setup";
  EngineOptions options = Base();
  const Outcome resident = RunModel(model, options, 20, 3);
  ASSERT_EQ(resident.plan.layers_streamed, 0u);
  const uint64_t floor = resident.plan.floor_bytes;

  options.budget_bytes = floor + (48 << 20);
  const Outcome half = RunModel(model, options, 20, 3);
  EXPECT_GT(half.plan.layers_streamed, 0u);
  EXPECT_EQ(half.hash, resident.hash);

  // The process itself has grown a little since the first plan.
  options.budget_bytes = half.plan.floor_bytes + (1 << 20);
  const Outcome least = RunModel(model, options, 20, 3);
  EXPECT_FALSE(least.plan.head_pinned);
  EXPECT_EQ(least.hash, resident.hash);

  options.budget_bytes = floor + (48 << 20);
  for (const auto& [io, name] :
       {std::pair(IoMode::kUring, "uring"), std::pair(IoMode::kPread, "pread"),
        std::pair(IoMode::kBuffered, "buffered")}) {
    for (int threads : {1, 2, 3}) {
      options.io = io;
      options.threads = threads;
      options.chunk = static_cast<uint32_t>(threads * threads * 3);
      EXPECT_EQ(RunModel(model, options, 20, 3).hash, resident.hash)
          << name << ", " << threads << " threads";
    }
  }
}

TEST(DenseIdentity, BelowTheFloorIsRefusedWithTheShortfall) {
  const std::string model = test::DefaultModelPath();
  if (!std::filesystem::exists(model))
    GTEST_SKIP() << "SKIP: no default model at " << model << "; run tools/setup";
  EngineOptions options = Base();
  options.budget_bytes = 20 << 20;
  const Result<std::unique_ptr<Engine>> engine = Engine::Open(model, options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kBudget);
  EXPECT_NE(engine.status().what().find("short"), std::string::npos) << engine.status().ToString();
  EXPECT_NE(engine.status().hint().find("--budget"), std::string::npos)
      << engine.status().ToString();
}

class ExpertIdentity : public testing::TestWithParam<const char*> {
 protected:
  std::string Path() const { return test::GoldenModel(GetParam()); }
};

// A tiny mixture and a tiny hybrid: every cache size from none to all, policies, look-ahead,
// threads, backends, chunks.
TEST_P(ExpertIdentity, CacheSizesPoliciesLookaheadAndChunks) {
  if (!std::filesystem::exists(Path())) GTEST_SKIP() << "SKIP: no golden data at " << Path();
  EngineOptions options = Base();
  const Outcome resident = RunModel(Path(), options, 70, 12);
  ASSERT_EQ(resident.plan.expert_slots, resident.plan.experts_total);
  for (uint32_t slots = 0; slots <= resident.plan.experts_total; ++slots) {
    options = Base();
    options.expert_slots = slots;
    options.lookahead = static_cast<int>(slots % 3);
    options.threads = 1 + static_cast<int>(slots % 2);
    options.lookahead_noise = slots % 5 == 4 ? 0.5 : 0;
    const char* policies[] = {"lru", "lfu-decay", "dual-decay"};
    options.policy = policies[slots % 3];
    EXPECT_EQ(RunModel(Path(), options, 70, 12).hash, resident.hash) << slots << " slots";
  }
  const uint32_t few = resident.plan.experts_total / 3;
  for (uint32_t chunk : {1u, 7u, 64u, 70u}) {
    for (IoMode io : {IoMode::kUring, IoMode::kPread, IoMode::kBuffered}) {
      options = Base();
      options.expert_slots = few;
      options.chunk = chunk;
      options.io = io;
      EXPECT_EQ(RunModel(Path(), options, 70, 12).hash, resident.hash) << "chunk " << chunk;
    }
  }
}

// A prompt of 2,000 tokens and 200 more, twice in one process with the smallest cache: equal to the
// resident run, and the second time equal to the first.
TEST_P(ExpertIdentity, LongPromptTwiceWithTheSmallestCache) {
  if (!std::filesystem::exists(Path())) GTEST_SKIP() << "SKIP: no golden data at " << Path();
  EngineOptions options = Base();
  options.context = 2304;
  const Outcome resident = RunModel(Path(), options, 2000, 200);
  options.expert_slots = 1;
  const auto engine = test::OpenEngine(Path(), options);
  ASSERT_NE(engine, nullptr);
  const auto session = Session::Create(engine.get());
  for (int turn = 0; turn < 2; ++turn) {
    (*session)->Rewind(0);
    engine->ResetStats();
    test::Go(session->get(), test::Text(2000, engine->vocab_size(), 0), 200);
    EXPECT_EQ(engine->stats().logits_hash, resident.hash) << "turn " << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ExpertIdentity,
                         testing::Values("qwen3_moe", "qwen3_5_moe", "gpt_oss_l7",
                                         "gguf_quant/qwen3_moe_q4km",
                                         "gguf_quant/qwen3_5_moe_q4km"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice
