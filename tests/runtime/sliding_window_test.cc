// Layers with a sliding window keep the window only, and nobody can tell: whatever is lost of them
// comes back from flash or is computed again, with the bits of an engine that keeps everything.
#include <atomic>

#include "tests/gates/engine_gate.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using test::Join;
using test::Text;

constexpr uint32_t kContext = 1280, kChunk = 32;

// gpt-oss: every other layer sees 128 tokens, over three pages; gemma3: two of three see 8.
class SlidingWindow : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = test::GoldenModel(GetParam());
#if defined(__SANITIZE_THREAD__)
    if (GetParam() == std::string("forged"))
      GTEST_SKIP() << "SKIP: takes minutes under a sanitizer; the release build runs it";
#endif
    if (GetParam() == std::string("forged")) {
      path_ = folder_ / "m.gguf";
      ASSERT_TRUE(Forge(testing::Tiny("gpt-oss-20b"), path_).ok());
    }
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "SKIP: no golden data at " << path_;
  }
  std::unique_ptr<Engine> Open(uint32_t chunk, bool stored = false, uint64_t kv_memory = 0) const {
    EngineOptions options = test::GateOptions(kContext, uint64_t{1} << 30);
    options.chunk = chunk;
    options.scratch_dir = folder_.path();
    options.kv_memory_tokens = kv_memory;
    options.keep_every_s = keep_every_s_;
    if (stored) options.state_dir = folder_ / "state";
    return test::OpenEngine(path_, options);
  }
  // The logits after ids; how many of them were known goes to `known`.
  std::vector<float> Ask(Session* session, const std::vector<TokenId>& ids,
                         uint32_t* known = nullptr) {
    const uint32_t kept = session->Align(ids);
    if (known != nullptr) *known = kept;
    const Status status = session->Append(std::span<const TokenId>(ids).subspan(kept));
    EXPECT_TRUE(status.ok()) << status.ToString();
    return test::Logits(*session);
  }
  // By an engine that has room for everything.
  std::vector<float> Whole(const std::vector<TokenId>& ids) {
    const auto engine = Open(kContext);
    EXPECT_GE(engine->plan().kv_sliding_tokens, kContext);
    const auto session = Session::Create(engine.get());
    return Ask(session->get(), ids);
  }
  std::string path_;
  double keep_every_s_ = 1e9;
  const test::TempFolder folder_;
};

TEST_P(SlidingWindow, TakesMemoryForItselfAndAChunk) {
  const auto engine = Open(kChunk);
  const Plan& plan = engine->plan();
  EXPECT_GT(plan.kv_sliding_tokens, 0u);
  EXPECT_LE(plan.kv_sliding_tokens, 128u + kChunk + 3 * 64);
  const auto longer = Engine::PlanFor(path_, [] {
    EngineOptions options = test::GateOptions(8 * kContext, uint64_t{1} << 30);
    options.chunk = kChunk;
    return options;
  }());
  ASSERT_TRUE(longer.ok()) << longer.status().ToString();
  EXPECT_EQ(longer->kv_sliding_bytes, plan.kv_sliding_bytes);
  EXPECT_EQ(longer->kv_bytes - longer->kv_sliding_bytes,
            8 * (plan.kv_bytes - plan.kv_sliding_bytes));
}

TEST_P(SlidingWindow, HasTheBitsOfARunThatKeepsEverything) {
  const auto hash = [&](const std::unique_ptr<Engine>& engine) {
    const auto session = Session::Create(engine.get());
    test::Go(session->get(), Text(900, engine->vocab_size(), 1), 200);
    return engine->stats().logits_hash;
  };
  const std::string whole = hash(Open(kContext));
  for (const uint32_t chunk : {7u, 32u, 64u, 200u}) EXPECT_EQ(hash(Open(chunk)), whole) << chunk;
  EXPECT_EQ(hash(Open(kChunk, false, 256)), whole) << "with the other layers' pages on the disk";
  EXPECT_EQ(hash(Open(kChunk, true)), whole) << "with a store";
}

// Back to where the window is lost: from flash if it is there, else computed again.
TEST_P(SlidingWindow, AnEditOfAnEarlyTurn) {
  for (const bool stored : {true, false}) {
    const auto engine = Open(kChunk, stored);
    const uint32_t vocab = engine->vocab_size();
    const auto session = Session::Create(engine.get());
    const auto text = Text(900, vocab, 1);
    Ask(session->get(), text);
    std::vector<TokenId> edited(text.begin(), text.begin() + 448);
    edited = Join(std::move(edited), Text(60, vocab, 5));
    uint32_t known = 0;
    EXPECT_EQ(Ask(session->get(), edited, &known), Whole(edited)) << stored;
    EXPECT_EQ(known, 448u);
    EXPECT_EQ(engine->stats().recomputed_tokens > 0, !stored);
    // In the middle of a page, whose rows before the cut nobody has any more.
    EXPECT_EQ((*session)->Rewind(100), 100u);
    const auto middle = Join({text.begin(), text.begin() + 100}, {5, 6, 7});
    EXPECT_EQ(Ask(session->get(), middle), Whole(middle)) << stored;
  }
}

// Whether its pages were written on the way or when their windows were lost.
TEST_P(SlidingWindow, AnotherTextWithTheSameBeginningAfterARestart) {
  for (const double every_s : {1e9, 0.0}) {
    keep_every_s_ = every_s;
    std::filesystem::remove_all(folder_ / "state");
    std::vector<TokenId> a;
    {
      const auto engine = Open(kChunk, true);
      a = Text(900, engine->vocab_size(), 1);
      const auto session = Session::Create(engine.get());
      (*session)->Mark(470);
      Ask(session->get(), a);
      (*session)->Keep(/*with_state=*/false);
    }
    const auto engine = Open(kChunk, true);
    const auto session = Session::Create(engine.get());
    const auto b = Join({a.begin(), a.begin() + 470}, Text(50, engine->vocab_size(), 3));
    uint32_t known = 0;
    EXPECT_EQ(Ask(session->get(), b, &known), Whole(b));
    EXPECT_EQ(known, 470u) << every_s;
    EXPECT_EQ(engine->stats().recomputed_tokens, 0u);
    EXPECT_EQ(Ask(session->get(), a, &known), Whole(a));
    EXPECT_EQ(known, 896u);
  }
}

TEST_P(SlidingWindow, TwoTimelinesTakeTheFramesFromEachOther) {
  const auto engine = Open(kChunk);
  const uint32_t vocab = engine->vocab_size();
  const auto one = Session::Create(engine.get()), two = Session::Create(engine.get());
  std::vector<TokenId> a = Text(300, vocab, 1), b = Text(260, vocab, 2);
  for (uint32_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(Ask(one->get(), a), Whole(a)) << turn;
    EXPECT_EQ(Ask(two->get(), b), Whole(b)) << turn;
    a = Join(std::move(a), Text(41, vocab, 3 + turn));
    b = Join(std::move(b), Text(37, vocab, 7 + turn));
  }
}

// Stopped while lost tokens are computed again: half of a window must not be taken for a whole one.
TEST_P(SlidingWindow, AStepThatIsCancelledWhileItComputesAgain) {
  std::atomic<bool> cancel{false}, armed{false};
  EngineOptions options = test::GateOptions(kContext, uint64_t{1} << 30);
  options.chunk = kChunk;
  options.progress = [&](const Progress& progress) {
    if (armed && progress.done > 100) cancel = true;
  };
  const auto engine = test::OpenEngine(path_, options);
  const auto session = Session::Create(engine.get());
  const auto text = Text(900, engine->vocab_size(), 1);
  Ask(session->get(), text);
  const auto more = Text(40, engine->vocab_size(), 2);
  ASSERT_EQ((*session)->Rewind(400), 400u);
  armed = true;
  EXPECT_FALSE((*session)->Append(more, {}, &cancel).ok());
  EXPECT_TRUE(cancel);
  armed = cancel = false;
  EXPECT_EQ((*session)->length(), 400u);
  ASSERT_TRUE((*session)->Append(more).ok());
  EXPECT_EQ(test::Logits(**session), Whole(Join({text.begin(), text.begin() + 400}, more)));
}

INSTANTIATE_TEST_SUITE_P(Models, SlidingWindow, ::testing::Values("forged", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice
