// Nothing is computed twice, and what is found again is what would have been computed: prompts,
// turns, edits and restarts on dense, mixture and hybrid models give the bits of a fresh run.
#include <atomic>
#include <filesystem>
#include <functional>

#include "tests/gates/engine_gate.h"
#include "tests/temp_folder.h"

namespace sluice {
namespace {

using test::Join;
using test::Text;

struct Kind {
  const char* name;
  bool recurrent;
};

class PrefixGate : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    path_ = test::GoldenModel(GetParam().name);
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "SKIP: no golden data at " << path_;
  }
  std::unique_ptr<Engine> Open(bool stored) const {
    EngineOptions options = test::GateOptions(768, uint64_t{1} << 30);
    options.scratch_dir = state_.path();
    if (stored) options.state_dir = state_.path();
    return test::OpenEngine(path_, options);
  }
  // The logits after ids, and how many of them were found; -1 after an error.
  int64_t Ask(Session* session, const std::vector<TokenId>& ids, std::vector<float>* logits) {
    const uint32_t kept = session->Align(ids);
    const Status status = session->Append(std::span<const TokenId>(ids).subspan(kept));
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(session->length(), ids.size());
    *logits = test::Logits(*session);
    return status.ok() ? kept : -1;
  }
  std::vector<float> Fresh(const std::vector<TokenId>& ids) {
    const auto engine = Open(false);
    const auto session = Session::Create(engine.get());
    std::vector<float> logits;
    EXPECT_EQ(Ask(session->get(), ids, &logits), 0);
    return logits;
  }
  std::string path_;
  const test::TempFolder state_;
};

TEST_P(PrefixGate, ASecondTextWithTheSameBeginningInOneProcess) {
  const auto engine = Open(false);
  const uint32_t vocab = engine->vocab_size();
  const auto system = Text(300, vocab, 1);
  const auto a = Join(system, Text(40, vocab, 2)), b = Join(system, Text(30, vocab, 3));
  std::vector<float> logits;
  {
    const auto first = Session::Create(engine.get());
    (*first)->Mark(300);
    EXPECT_EQ(Ask(first->get(), a, &logits), 0);
    for (TokenId id = 1; id < 20; ++id) ASSERT_TRUE((*first)->Append({&id, 1}).ok());
  }
  const auto second = Session::Create(engine.get());
  EXPECT_EQ(Ask(second->get(), b, &logits), 300);
  EXPECT_EQ(logits, Fresh(b));
}

TEST_P(PrefixGate, TwoTimelinesAtOnceShareAndDoNotDisturbEachOther) {
  if (GetParam().recurrent) GTEST_SKIP() << "a hybrid engine holds one timeline";
  const auto engine = Open(false);
  const uint32_t vocab = engine->vocab_size();
  const auto system = Text(200, vocab, 1);
  const auto a = Join(system, Text(20, vocab, 2)), b = Join(system, Text(20, vocab, 3));
  const auto one = Session::Create(engine.get()), two = Session::Create(engine.get());
  std::vector<float> logits;
  EXPECT_EQ(Ask(one->get(), a, &logits), 0);
  EXPECT_EQ(Ask(two->get(), b, &logits), 192) << "whole pages of a timeline that goes on";
  EXPECT_EQ(logits, Fresh(b));
  const auto longer = Join(a, Text(60, vocab, 5));
  EXPECT_EQ(Ask(one->get(), longer, &logits), 220);
  EXPECT_EQ(logits, Fresh(longer));
  // Cut into the middle of a shared page and write there: the other must not see it.
  const auto other = Join(Text(100, vocab, 1), Text(50, vocab, 7));
  EXPECT_EQ(Ask(two->get(), other, &logits), 100);
  EXPECT_EQ(logits, Fresh(other));
  const auto more = Join(longer, Text(9, vocab, 8));
  EXPECT_EQ(Ask(one->get(), more, &logits), 280);
  EXPECT_EQ(logits, Fresh(more));
}

TEST_P(PrefixGate, ARestartFindsItOnFlash) {
  std::vector<TokenId> a, b;
  std::vector<float> logits;
  {
    const auto engine = Open(true);
    const uint32_t vocab = engine->vocab_size();
    const auto system = Text(300, vocab, 1);
    a = Join(system, Text(40, vocab, 2));
    b = Join(system, Text(30, vocab, 3));
    const auto session = Session::Create(engine.get());
    (*session)->Mark(300);
    EXPECT_EQ(Ask(session->get(), a, &logits), 0);
    (*session)->Keep(/*with_state=*/true);
  }
  const auto engine = Open(true);
  const auto session = Session::Create(engine.get());
  EXPECT_EQ(Ask(session->get(), b, &logits), 300);
  EXPECT_EQ(logits, Fresh(b));
  // And the whole of the first text, which went on to its end.
  const auto on = Join(a, {1, 2, 3});
  EXPECT_EQ(Ask(session->get(), on, &logits), GetParam().recurrent ? 340 : 320);
  EXPECT_EQ(logits, Fresh(on));
}

TEST_P(PrefixGate, TurnsComputeOnlyWhatIsNewAndEditsGoBackToASnapshot) {
  const auto engine = Open(false);
  const uint32_t vocab = engine->vocab_size();
  const auto session = Session::Create(engine.get());
  std::vector<float> logits;
  const auto turn1 = Text(150, vocab, 1);
  EXPECT_EQ(Ask(session->get(), turn1, &logits), 0);
  const auto turn2 = Join(turn1, Text(33, vocab, 2));
  EXPECT_EQ(Ask(session->get(), turn2, &logits), 150);
  EXPECT_EQ(logits, Fresh(turn2));
  const auto turn3 = Join(turn2, Text(20, vocab, 3));
  EXPECT_EQ(Ask(session->get(), turn3, &logits), 183);
  const auto edited = Join(turn2, Text(25, vocab, 4));
  // A recurrent state is kept one token before a prompt's end: the same prompt needs that one's
  // logits.
  EXPECT_EQ(Ask(session->get(), edited, &logits), GetParam().recurrent ? 182 : 183);
  EXPECT_EQ(logits, Fresh(edited));
  const auto shorter = std::vector<TokenId>(turn2.begin(), turn2.begin() + 170);
  EXPECT_EQ(Ask(session->get(), shorter, &logits), GetParam().recurrent ? 149 : 169);
  EXPECT_EQ(logits, Fresh(shorter));
  EXPECT_EQ(Ask(session->get(), turn2, &logits), 182);
  EXPECT_EQ(logits, Fresh(turn2));
}

TEST_P(PrefixGate, ACutTimelineGoesOnFromTheNewestSnapshot) {
  const auto engine = Open(false);
  const uint32_t vocab = engine->vocab_size();
  const auto session = Session::Create(engine.get());
  const auto text = Text(200, vocab, 1);
  ASSERT_TRUE((*session)->Append(text).ok());
  const auto more = Text(50, vocab, 2);
  ASSERT_TRUE((*session)->Append(more).ok());
  EXPECT_EQ((*session)->Rewind(220), 220u);
  const TokenId id = 5;
  ASSERT_TRUE((*session)->Append({&id, 1}).ok());
  const std::vector<float> logits = test::Logits(**session);
  auto whole = Join(text, more);
  whole.resize(220);
  whole.push_back(5);
  EXPECT_EQ(logits, Fresh(whole));
}

// A prompt of 700 tokens in chunks of 64, with a snapshot at 256: at 400 tokens something happens.
class LongPrompt : public PrefixGate {
 protected:
  std::unique_ptr<Engine> Open(const std::string& state, double keep_every_s,
                               std::function<void()> at_400 = {}) const {
    EngineOptions options = test::GateOptions(768, uint64_t{1} << 30);
    options.scratch_dir = state_.path();
    options.state_dir = state;
    options.chunk = 64;
    options.keep_every_s = keep_every_s;
    options.progress = [at_400, done = false](const Progress& progress) mutable {
      if (done || !at_400 || progress.stage != "prefill" || progress.done < 400) return;
      done = true;
      at_400();
    };
    return test::OpenEngine(path_, options);
  }
  static void ExpectCancelled(Engine* engine, const std::atomic<bool>* cancel) {
    const auto session = Session::Create(engine);
    (*session)->Mark(256);
    const auto text = Text(700, engine->vocab_size(), 1);
    EXPECT_FALSE((*session)->Append(text, {}, cancel).ok());
    EXPECT_EQ((*session)->length(), 0u);
  }
  void ExpectGoesOn(Engine* engine) {
    const auto session = Session::Create(engine);
    const auto text = Text(700, engine->vocab_size(), 1);
    std::vector<float> logits;
    EXPECT_EQ(Ask(session->get(), text, &logits), GetParam().recurrent ? 256 : 384);
    EXPECT_EQ(logits, Fresh(text));
  }
};

TEST_P(LongPrompt, ThatIsCancelledGoesOnWhereItStopped) {
  std::atomic<bool> cancel{false};
  ExpectCancelled(Open(state_.path(), 1e9, [&] { cancel = true; }).get(), &cancel);
  ExpectGoesOn(Open(state_.path(), 1e9).get());
}

TEST_P(LongPrompt, ThatIsCancelledGoesOnInTheSameProcess) {
  std::atomic<bool> cancel{false};
  const auto engine = Open(state_.path(), 1e9, [&] { cancel = true; });
  ExpectCancelled(engine.get(), &cancel);
  ExpectGoesOn(engine.get());
}

TEST_P(LongPrompt, WhoseLastChunkIsOneTokenIsKnownTheNextTime) {
  const auto engine = Open(state_.path(), 1e9);
  const auto text = Text(129, engine->vocab_size(), 1);
  std::vector<float> first, again;
  EXPECT_EQ(Ask(Session::Create(engine.get())->get(), text, &first), 0);
  EXPECT_EQ(Ask(Session::Create(engine.get())->get(), text, &again), 128);
  EXPECT_EQ(first, again);
}

// What lies on flash in the middle of the prompt is what a kill would leave.
TEST_P(LongPrompt, ThatIsKilledGoesOnFromWhatWasWritten) {
  const test::TempFolder killed;
  const auto engine = Open(state_.path(), 0, [&] {
    std::filesystem::copy(state_ / "prefix", killed / "prefix",
                          std::filesystem::copy_options::recursive);
  });
  const auto session = Session::Create(engine.get());
  (*session)->Mark(256);
  ASSERT_TRUE((*session)->Append(Text(700, engine->vocab_size(), 1)).ok());
  ExpectGoesOn(Open(killed.path(), 0).get());
}

TEST_P(PrefixGate, DamagedEntriesCostTimeOnly) {
  std::vector<TokenId> a;
  std::vector<float> logits;
  {
    const auto engine = Open(true);
    a = Text(340, engine->vocab_size(), 1);
    const auto session = Session::Create(engine.get());
    (*session)->Mark(300);
    EXPECT_EQ(Ask(session->get(), a, &logits), 0);
    (*session)->Keep(true);
  }
  const std::vector<float> good = logits;
  int n = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(state_ / "prefix")) {
    if (!entry.is_regular_file() || ++n % 2 == 0) continue;
    std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) - 1);
  }
  ASSERT_GT(n, 2);
  const auto engine = Open(true);
  const auto session = Session::Create(engine.get());
  EXPECT_LT(Ask(session->get(), a, &logits), 340);
  EXPECT_EQ(logits, good);
}

const auto kKinds = testing::Values(Kind{"qwen3", false}, Kind{"qwen3_moe", false},
                                    Kind{"gemma3", false}, Kind{"deepseek_v2", false},
                                    Kind{"qwen3_next", true}, Kind{"qwen3_5_moe", true});
std::string Name(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Models, PrefixGate, kKinds, Name);
INSTANTIATE_TEST_SUITE_P(Models, LongPrompt, kKinds, Name);

}  // namespace
}  // namespace sluice
