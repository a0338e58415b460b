// Room by a summary, and answers that are taken up again, against a scripted model.
#include <gtest/gtest.h>

#include "tests/runtime/script_model.h"

namespace sluice {
namespace {

using namespace script;

Result<GenerateResult> Said(const std::string& text, const std::string& reason = "stop") {
  GenerateResult result;
  result.text = text;
  result.finish_reason = reason;
  return result;
}

// Eight turns of 66 bytes fit with their answers, the ninth question does not.
constexpr uint32_t kCapacity = 545;
const std::string kAnswer(50, 'o');

struct Summarising : Talk {
  Summarising() {
    chat.SetSystem("SYS");
    chat.SetContextFull(ContextFull::kSummarise);
    summary = [](int64_t) { return Said(" they met \n"); };
  }
  Result<GenerateResult> Say(const std::string& user, const std::string& answer = kAnswer,
                             const GenerateOptions& options = Greedy()) {
    script = std::make_unique<Script>(Ids(answer), kCapacity);
    script->resume = true;
    return Ask(script.get(), user, options);
  }
  void Turns(int n) {
    for (int i = 0; i < n; ++i) {
      const auto result = Say("question " + std::to_string(i));
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      ASSERT_EQ(result->text, kAnswer) << i;
    }
  }
  nlohmann::json History() const { return nlohmann::json::parse(chat.HistoryJson()); }
  std::unique_ptr<Script> script;
};

TEST(ChatSummary, ReplacesTheOldestTurnsAndKeepsSystemAndNewest) {
  Summarising talk;
  talk.Turns(8);
  EXPECT_TRUE(talk.requests.empty());
  auto result = talk.Say("question 8");
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->text, kAnswer);
  EXPECT_GE(result->summarised_turns, 1u);
  EXPECT_EQ(result->dropped_turns, 0u);
  ASSERT_EQ(talk.notices.size(), 1u);
  EXPECT_NE(talk.notices[0].find("replaced by a summary"), std::string::npos);
  // The request holds the system text and the oldest turns, not the question that waits.
  ASSERT_EQ(talk.requests.size(), 1u);
  EXPECT_TRUE(talk.requests[0].starts_with("<s>SYS<u>question 0<a>"));
  EXPECT_EQ(talk.requests[0].find("question 8"), std::string::npos);
  const auto history = talk.History();
  EXPECT_EQ(history[0]["content"], "SYS\n\n[Summary of the earlier conversation]\nthey met");
  EXPECT_EQ(history[history.size() - 2]["content"], "question 8");
  EXPECT_EQ(history[history.size() - 4]["content"], "question 7");
  EXPECT_EQ(history[history.size() - 6]["content"], "question 6");
  EXPECT_EQ(talk.chat.state().summary, "they met");
}

TEST(ChatSummary, TheNextSummaryReplacesTheFirst) {
  Summarising talk;
  int count = 0;
  talk.summary = [&](int64_t) { return Said("summary " + std::to_string(++count)); };
  talk.Turns(14);
  ASSERT_GE(count, 2);
  EXPECT_NE(talk.requests.back().find("summary " + std::to_string(count - 1)), std::string::npos);
  const std::string system = talk.History()[0]["content"];
  EXPECT_TRUE(system.ends_with("summary " + std::to_string(count)));
  EXPECT_EQ(system.find("summary 1"), count == 1 ? 0 : std::string::npos) << system;
  for (const std::string& notice : talk.notices) {
    EXPECT_EQ(notice.find("dropped"), std::string::npos) << notice;
  }
}

TEST(ChatSummary, FallsBackToDroppingWithTheReason) {
  struct Case {
    std::function<Result<GenerateResult>(int64_t)> summary;
    std::string reason;
  };
  const Case cases[] = {
      {[](int64_t) { return Said(" \n"); }, "came out empty"},
      {[](int64_t) { return Said("<think>hm, what", "length"); }, "came out empty"},
      {[](int64_t) { return Result<GenerateResult>(Status(Code::kIo, "lost device")); },
       "lost device"},
      {[](int64_t) { return Said(std::string(400, 's')); }, "does not make room"},
  };
  for (const Case& c : cases) {
    Summarising talk;
    talk.summary = c.summary;
    talk.Turns(9);
    ASSERT_FALSE(talk.notices.empty());
    EXPECT_NE(talk.notices.back().find(c.reason), std::string::npos) << talk.notices.back();
    EXPECT_NE(talk.notices.back().find("dropped"), std::string::npos);
    EXPECT_TRUE(talk.History()[0]["content"].get<std::string>().starts_with("SYS"));
    EXPECT_EQ(talk.History().back()["content"], kAnswer);
    EXPECT_LE(talk.script->tokens().size(), kCapacity);
  }
}

TEST(ChatSummary, ThoughtsAreNoPartOfIt) {
  Summarising talk;
  talk.summary = [](int64_t) { return Said("<think>a\nb</think>\n\nthey met"); };
  talk.Turns(9);
  EXPECT_EQ(talk.chat.state().summary, "they met");
}

// The last two turns fill the context: there is nothing to sum up.
TEST(ChatSummary, TheLastTwoTurnsAreNeverSummarised) {
  Summarising talk;
  ASSERT_TRUE(talk.Say("question 0", std::string(150, 'o')).ok());
  ASSERT_TRUE(talk.Say("question 1", std::string(150, 'o')).ok());
  ASSERT_TRUE(talk.Say(std::string(220, 'q'), "ok").ok());
  EXPECT_TRUE(talk.requests.empty());
  ASSERT_EQ(talk.notices.size(), 1u);
  EXPECT_NE(talk.notices[0].find("the last two turns"), std::string::npos);
  EXPECT_NE(talk.notices[0].find("dropped"), std::string::npos);
}

TEST(ChatSummary, InTheMiddleOfAnAnswer) {
  Summarising talk;
  talk.Turns(7);
  const size_t before = talk.requests.size();
  std::string answer;
  for (int i = 0; i < 100; ++i) answer += static_cast<char>('a' + i % 26);
  auto result = talk.Say("on", answer);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->text, answer);  // nothing lost or doubled at the seam
  EXPECT_EQ(result->finish_reason, "stop");
  EXPECT_EQ(talk.requests.size(), before + 1);
  EXPECT_GE(result->summarised_turns, 1u);
}

TEST(ChatSummary, CancelledWhileSummarising) {
  Summarising talk;
  std::atomic<bool> cancel = false;
  talk.Turns(8);
  const std::string before = talk.chat.HistoryJson();
  talk.summary = [&](int64_t) {
    cancel = true;
    return Said("half a", "cancelled");
  };
  GenerateOptions options = Greedy();
  options.cancel = &cancel;
  auto result = talk.Say("question 8", kAnswer, options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->finish_reason, "cancelled");
  EXPECT_EQ(talk.chat.HistoryJson(), before);
}

TEST(ChatSummary, ClearForgetsItUndoKeepsIt) {
  Summarising talk;
  talk.Turns(9);
  EXPECT_TRUE(talk.chat.Undo());
  EXPECT_EQ(talk.chat.state().summary, "they met");
  talk.chat.Clear();
  EXPECT_EQ(talk.chat.HistoryJson(), R"([{"role":"system","content":"SYS"}])");
}

// Cut at every length and taken up again: the tokens, the text and the pieces shown are those of
// an answer that was never cut, and the history is the same.
TEST(ChatContinue, GoesOnWhereItWasCut) {
  const std::string answer = "one ST two caf\xC3\xA9 STOX three";
  for (int64_t n = 1; n < static_cast<int64_t>(answer.size()); ++n) {
    Talk talk;
    Script script(Ids(answer));
    script.resume = true;
    GenerateOptions options = Greedy();
    options.stops = {"STOP"};
    options.max_tokens = n;
    ASSERT_FALSE(talk.chat.can_continue());
    auto first = talk.Ask(&script, "say", options);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->finish_reason, "length");
    ASSERT_TRUE(talk.chat.can_continue());
    std::string shown = first->text;
    options.max_tokens = -1;
    options.on_text = [&](std::string_view piece) { shown += piece; };
    auto rest = talk.Continue(&script, options);
    ASSERT_TRUE(rest.ok()) << rest.status().ToString();
    EXPECT_EQ(rest->text, answer) << n;
    EXPECT_EQ(rest->ids, Ids(answer));
    EXPECT_EQ(shown, answer) << n;
    EXPECT_EQ(script.tokens(), Ids("<u>say<a>" + answer));
    EXPECT_EQ(talk.chat.turns(), 1u);
    EXPECT_FALSE(talk.chat.can_continue());
  }
}

TEST(ChatContinue, OnlyAnAnswerThatWasCut) {
  Talk talk;
  Script script(Ids("ok"));
  EXPECT_EQ(talk.Continue(&script).status().code(), Code::kUsage);
  ASSERT_TRUE(talk.Ask(&script, "a").ok());
  EXPECT_EQ(talk.Continue(&script).status().code(), Code::kUsage);
  GenerateOptions one = Greedy();
  one.max_tokens = 1;
  ASSERT_TRUE(talk.Ask(&script, "b", one).ok());
  EXPECT_TRUE(talk.chat.can_continue());
  const std::string before = talk.chat.HistoryJson();
  script.fail_at = 1;
  EXPECT_EQ(talk.Continue(&script).status().code(), Code::kIo);
  EXPECT_EQ(talk.chat.HistoryJson(), before);
  EXPECT_TRUE(talk.chat.can_continue());
  talk.chat.Undo();
  EXPECT_FALSE(talk.chat.can_continue());
}

}  // namespace
}  // namespace sluice
