// Forged files in the engine: every shape loads, and the planted routing is what runs.
#include <map>
#include <numeric>
#include <tuple>

#include "pack/forge_shape.h"
#include "sluice/tokenizer.h"
#include "tests/pack/forge_support.h"
#include "tests/test_data.h"

namespace sluice {
namespace {

using namespace testing;

std::vector<TokenId> Ids(uint32_t n) {
  std::vector<TokenId> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The prompt, then its greedy answer: all that ran.
std::vector<TokenId> Ran(std::vector<TokenId> prompt, const std::vector<TokenId>& greedy) {
  prompt.insert(prompt.end(), greedy.begin(), greedy.end());
  return prompt;
}

class ForgeReplayTest : public ::testing::TestWithParam<ForgeOptions> {};

TEST_P(ForgeReplayTest, UniformRoutingIsReplayed) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  const ForgeOptions& o = GetParam();
  const Result<ForgeReport> report = Forge(o, path);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(std::filesystem::file_size(path), report->file_bytes);
  const Result<ForgeShape> shape = FindForgeShape(o.shape, o.overrides);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(report->codes, shape->hidden);
  const ForgeRouting plan = ForgeRouting::Uniform(*shape, report->codes, o.seed);
  for (ActType act : {ActType::kQ8, ActType::kF32}) {
    const std::vector<TokenId> prompt = Ids(40);
    const Replay replay = RunForged(path, prompt, 30, act);
    std::vector<TokenId> successors(30);
    std::iota(successors.begin(), successors.end(), 40);
    EXPECT_EQ(replay.greedy, successors);
    ExpectPlanned(replay.routes, plan, Ran(prompt, replay.greedy), shape->layers);
  }
}

TEST_P(ForgeReplayTest, AnyTokenHasACodeAndTheLastIsFollowedByTheFirst) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  const ForgeOptions& o = GetParam();
  const Result<ForgeReport> report = Forge(o, path);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const Result<ForgeShape> shape = FindForgeShape(o.shape, o.overrides);
  const ForgeRouting plan = ForgeRouting::Uniform(*shape, report->codes, o.seed);
  const auto codes = static_cast<TokenId>(report->codes);
  const std::vector<TokenId> prompt = {static_cast<TokenId>(shape->vocab) - 1, codes - 1};
  const Replay replay = RunForged(path, prompt, 3);
  EXPECT_EQ(replay.greedy, (std::vector<TokenId>{0, 1, 2}));
  ExpectPlanned(replay.routes, plan, Ran(prompt, replay.greedy), shape->layers);
}

ForgeOptions Plain(const std::string& shape, const std::string& recipe) {
  ForgeOptions o = Tiny(shape);
  o.recipe = recipe;
  o.seed = 77;
  o.overrides.hidden = 96;
  o.overrides.expert_ff = 64;
  o.overrides.head_dim = 32;
  return o;
}

INSTANTIATE_TEST_SUITE_P(
    All, ForgeReplayTest,
    ::testing::Values(Tiny("qwen3-30b-a3b"), Tiny("qwen3.6-35b-a3b"), Tiny("gpt-oss-20b"),
                      Tiny("gpt-oss-120b"), Tiny("olmoe-7b"), Plain("qwen3-30b-a3b", "q8_0"),
                      Plain("qwen3-30b-a3b", "f32"), Plain("gpt-oss-20b", "mxfp4")),
    [](const auto& param) {
      std::string name = param.param.shape + "_" + param.param.recipe;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

// The recorded routing of the real model: 48 layers, 128 experts, top-6, in matrices so small that
// the file is 60 MB.
TEST(ForgeTraceTest, RecordedRoutingIsReplayedSlotBySlot) {
  const std::string trace_path = test::SharedPath("traces/qwen3-30b-a3b.top6.route.csv");
  if (!std::filesystem::exists(trace_path))
    GTEST_SKIP() << "SKIP: no recorded trace at " << trace_path;
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  o.overrides = {};
  o.overrides.hidden = 160;
  o.overrides.expert_ff = 32;
  o.overrides.heads = 2;
  o.overrides.kv_heads = 1;
  o.overrides.head_dim = 32;
  o.overrides.vocab = 640;
  o.recipe = "mxfp4";
  o.trace_path = trace_path;
  const Result<ForgeReport> report = Forge(o, path);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->codes, 156u);
  EXPECT_EQ(report->prompt_tokens, 28u);
  EXPECT_EQ(report->used, 6u);

  const Replay replay = RunForged(path, Ids(28), 128);
  RouteTrace want = ReadRoutes(trace_path);
  // The record lacks the last layer of the prompt but for its last token.
  ASSERT_EQ(want.rows.size(), (156u * 48 - 27) * 6);
  ASSERT_EQ(replay.routes.rows.size(), 156u * 48 * 6);
  // Recorded against recorded, without the plan in between.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, float> ran;
  for (const RouteRow& row : replay.routes.rows)
    ran[{row.step, row.layer, row.expert}] = row.weight;
  uint64_t wrong = 0;
  for (const RouteRow& row : want.rows) {
    const auto it = ran.find({row.step, row.layer, row.expert});
    wrong += it == ran.end() || std::abs(it->second - row.weight) > 1e-3f;
  }
  EXPECT_EQ(wrong, 0u) << "of " << want.rows.size() << " slots";
}

TEST(ForgeTokenizerTest, TheEngineReadsAndWritesText) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  o.overrides.vocab = 4096;
  ASSERT_TRUE(Forge(o, path).ok());
  EngineOptions options;
  options.context = 64;
  const Result<std::unique_ptr<Engine>> engine = Engine::Open(path, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const TextModel* text = (*engine)->text();
  ASSERT_NE(text, nullptr);
  const std::string sample = "The river runs, 42 times \xC3\xA9\xE2\x82\xAC!\n";
  const std::vector<TokenId> ids = text->Encode(sample, false, false);
  EXPECT_LT(ids.size(), sample.size());  // merges at work
  EXPECT_EQ(text->Decode(ids), sample);
  const std::vector<TokenId> end = text->Encode("<|im_end|>", true, false);
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(std::count(text->eog().begin(), text->eog().end(), end[0]), 1);
  EXPECT_TRUE(text->has_chat_template());
}

}  // namespace
}  // namespace sluice
