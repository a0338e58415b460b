// Generation and chat against a scripted model: what it will say is written down, so every cut,
// limit and reuse can be checked exactly.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/runtime/script_model.h"

namespace sluice {
namespace {

using namespace script;

struct Answer {
  explicit Answer(GenerateOptions options)
      : generation(Watched(std::move(options)), &bytes, kEogs, kVocab) {}
  GenerateOptions Watched(GenerateOptions options) {
    cancel = options.cancel;
    options.on_text = [this](std::string_view piece) { streamed += piece; };
    return options;
  }
  Result<GenerateResult> Go(Script* script, const std::vector<TokenId>& prompt,
                            TokenId bos = kBos) {
    return GenerateFrom(script, prompt, bos, &generation, cancel);
  }
  const std::atomic<bool>* cancel = nullptr;
  std::string streamed;
  Bytes bytes;
  Generation generation;
};

TEST(StopMatcher, CutsTheSameForEveryChunking) {
  struct Case {
    std::vector<std::string> stops;
    std::string text, want;
    bool stopped;
  };
  const std::vector<Case> cases = {
      {{"STOP"}, "abcSTOPdef", "abc", true},
      {{"STOP"}, "abcSTOX", "abcSTOX", false},
      {{"STOP"}, "SSTOSTOP!", "SSTO", true},
      {{"\n\n", "END"}, "a\nEN\nEND", "a\nEN\n", true},
      {{"abcd", "bc"}, "xabcd", "xa", true},
      {{"aab"}, "aaaab", "aa", true},
      {{"é!"}, "caf\xC3\xA9 caf\xC3\xA9!x", "caf\xC3\xA9 caf", true},
      {{"abc", "bc"}, "zabc", "z", true},
      {{"STOP"}, "ends with STO", "ends with STO", false},
  };
  for (const Case& c : cases) {
    for (size_t chunk = 1; chunk <= c.text.size(); ++chunk) {
      StopMatcher matcher(c.stops);
      std::string out;
      bool stopped = false;
      for (size_t i = 0; i < c.text.size() && !stopped; i += chunk) {
        out += matcher.Push(c.text.substr(i, chunk), &stopped);
        EXPECT_TRUE(c.want.starts_with(out)) << "leaked: " << out;
      }
      out += matcher.Flush();
      EXPECT_EQ(out, c.want) << c.text << " in pieces of " << chunk;
      EXPECT_EQ(stopped, c.stopped) << c.text;
    }
  }
  EXPECT_EQ(StopMatcher::Validate({""}).code(), Code::kUsage);
  EXPECT_EQ(StopMatcher::Validate({"\xA9"}).code(), Code::kUsage);
  EXPECT_TRUE(StopMatcher::Validate({"x", "\xC3\xA9"}).ok());
}

TEST(Generate, EndsAtTheEndToken) {
  Script script(Ids("hello"));
  Answer run(Greedy());
  auto result = run.Go(&script, Ids("hi"));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->text, "hello");
  EXPECT_EQ(run.streamed, "hello");
  EXPECT_EQ(result->ids, Ids("hello"));
  EXPECT_EQ(result->finish_reason, "stop");
  EXPECT_EQ(script.tokens().size(), 7u);  // prompt and answer, not the end token
}

TEST(Generate, StopStringAcrossTokens) {
  for (const auto& script_ids : {Ids("one STOP two"), Ids("one STOX STOP")}) {
    Script script(script_ids);
    GenerateOptions options = Greedy();
    options.stops = {"STOP"};
    Answer run(options);
    auto result = run.Go(&script, Ids("x"));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->text, script_ids.size() == 12 ? "one " : "one STOX ");
    EXPECT_EQ(run.streamed, result->text);
    EXPECT_EQ(result->finish_reason, "stop");
  }
  Script whole({'a', kStoX, 'b'});
  GenerateOptions options = Greedy();
  options.stops = {"TO"};
  Answer run(options);
  EXPECT_EQ(run.Go(&whole, Ids("x"))->text, "aS");
}

TEST(Generate, HeldBackTextIsNotLostAtTheEnd) {
  for (int64_t n : {-1, 3}) {
    Script script(Ids("aST"));
    GenerateOptions options = Greedy();
    options.stops = {"STOP"};
    options.max_tokens = n;
    Answer run(options);
    auto result = run.Go(&script, Ids("x"));
    EXPECT_EQ(result->text, "aST");
    EXPECT_EQ(run.streamed, "aST");
  }
}

TEST(Generate, LengthZeroAndLimits) {
  Script script(Ids("hello"));
  GenerateOptions options = Greedy();
  options.max_tokens = 0;
  Answer none(options);
  auto result = none.Go(&script, Ids("abc"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "");
  EXPECT_EQ(result->finish_reason, "length");
  EXPECT_EQ(script.tokens().size(), 3u);  // the prompt is in place

  Script two(Ids("hello"));
  options.max_tokens = 2;
  Answer run(options);
  result = run.Go(&two, Ids("abc"));
  EXPECT_EQ(result->text, "he");
  EXPECT_EQ(result->finish_reason, "length");
  EXPECT_EQ(two.tokens().size(), 4u);  // the last token is picked, not run

  Script exact(Ids("he"));  // the end token would come next: the limit comes first
  Answer at_limit(options);
  EXPECT_EQ(at_limit.Go(&exact, Ids("a"))->finish_reason, "length");

  options.max_tokens = -2;
  Answer bad(options);
  EXPECT_EQ(bad.Go(&script, Ids("a")).status().code(), Code::kUsage);
}

TEST(Generate, EmptyPrompt) {
  Script script(Ids("ok"));
  Answer with_bos(Greedy());
  auto result = with_bos.Go(&script, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "ok");
  EXPECT_EQ(script.tokens()[0], kBos);

  Script without(Ids("ok"));
  Answer run(Greedy());
  auto error = run.Go(&without, {}, -1);
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kUsage);
  EXPECT_NE(error.status().ToString().find("BOS"), std::string::npos);
  EXPECT_EQ(without.tokens().size(), 0u);
}

TEST(Generate, ContextEnd) {
  Script script(Ids("abcdefgh"), 6);
  Answer run(Greedy());
  auto result = run.Go(&script, Ids("123"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "abc");
  EXPECT_EQ(result->finish_reason, "context");
  EXPECT_EQ(script.tokens().size(), 6u);

  Script full(Ids("abc"), 3);
  Answer at_once(Greedy());
  EXPECT_EQ(at_once.Go(&full, Ids("123"))->finish_reason, "context");

  Script over(Ids("abc"), 3);
  Answer too_long(Greedy());
  EXPECT_EQ(too_long.Go(&over, Ids("1234")).status().code(), Code::kContextFull);
  EXPECT_EQ(over.tokens().size(), 0u);
}

// S05: no half character in the stream, none at the end, and no replacement mark.
TEST(Generate, WholeCharactersOnly) {
  const std::string smile = "\xF0\x9F\x98\x80";
  Script script(Ids("a" + smile + smile));
  GenerateOptions options = Greedy();
  options.max_tokens = 7;
  Answer run(options);
  auto result = run.Go(&script, Ids("x"));
  EXPECT_EQ(result->text, "a" + smile);
  EXPECT_EQ(run.streamed, "a" + smile);
  EXPECT_EQ(result->ids.size(), 7u);
}

TEST(Generate, InvalidLogitsEndInAnError) {
  Script script(Ids("abcdef"));
  script.poison = true;
  Answer run(Greedy());
  auto result = run.Go(&script, Ids("xy"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kFailed);
  EXPECT_NE(result.status().ToString().find("invalid logits"), std::string::npos);
}

TEST(Generate, CancelInPrefillAndInTheAnswer) {
  std::atomic<bool> cancel = true;
  GenerateOptions options = Greedy();
  options.cancel = &cancel;
  Script script(Ids("abc"));
  Answer run(options);
  auto result = run.Go(&script, Ids("xy"));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->finish_reason, "cancelled");
  EXPECT_EQ(script.tokens().size(), 0u);

  cancel = false;
  Script second(Ids("abcdef"));
  Bytes bytes;
  std::string said;
  options.on_text = [&](std::string_view piece) {
    said += piece;
    if (said == "abc") cancel = true;
  };
  Generation generation(options, &bytes, kEogs, kVocab);
  result = GenerateFrom(&second, Ids("xy"), kBos, &generation, &cancel);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, "cancelled");
  EXPECT_EQ(result->text, "abc");
}

TEST(Generate, IgnoreEogBansTheEndToken) {
  Script script(Ids("ab"));
  GenerateOptions options = Greedy();
  options.ignore_eog = true;
  options.max_tokens = 10;
  Answer run(options);
  auto result = run.Go(&script, Ids("x"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, "length");
  EXPECT_EQ(result->ids.size(), 10u);
  EXPECT_EQ(std::count(result->ids.begin(), result->ids.end(), kEog), 0);
}

TEST(Generate, BadSamplingOptionBeforeAnyWork) {
  Script script(Ids("ab"));
  GenerateOptions options = Greedy();
  options.sampling.top_p = 2;
  Answer run(options);
  EXPECT_EQ(run.Go(&script, Ids("x")).status().code(), Code::kUsage);
  EXPECT_EQ(script.appends, 0u);
}

TEST(Chat, SecondTurnRunsOnlyTheNewTokens) {
  Talk talk;
  talk.chat.SetSystem("be");
  Script script(Ids("fine"));
  auto first = talk.Ask(&script, "how?");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->text, "fine");
  EXPECT_EQ(first->reused_tokens, 0u);
  const size_t before = script.appended, length = script.tokens().size();
  auto second = talk.Ask(&script, "and?");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->reused_tokens, length);
  EXPECT_EQ(script.appended - before, Ids("<u>and?<a>").size() + 4);
  EXPECT_EQ(talk.chat.HistoryJson(),
            R"([{"role":"system","content":"be"},{"role":"user","content":"how?"},)"
            R"({"role":"assistant","content":"fine"},{"role":"user","content":"and?"},)"
            R"({"role":"assistant","content":"fine"}])");
}

// The same text as a fresh run, whatever was in the timeline before (E09).
TEST(Chat, UndoClearAndRecurrentRewind) {
  for (bool whole_only : {false, true}) {
    Talk talk;
    Script script(Ids("yes"));
    script.whole_only = whole_only;
    ASSERT_TRUE(talk.Ask(&script, "a?").ok());
    ASSERT_TRUE(talk.Ask(&script, "b?").ok());
    EXPECT_TRUE(talk.chat.Undo());
    auto again = talk.Ask(&script, "c?");
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(script.tokens(), Ids("<u>a?<a>yes<u>c?<a>yes"));
    EXPECT_EQ(again->reused_tokens, whole_only ? 0u : Ids("<u>a?<a>yes<u>").size());
    talk.chat.Clear();
    EXPECT_EQ(talk.chat.HistoryJson(), "[]");
    EXPECT_FALSE(talk.chat.Undo());
    ASSERT_TRUE(talk.Ask(&script, "d?").ok());
    EXPECT_EQ(script.tokens(), Ids("<u>d?<a>yes"));
  }
}

TEST(Chat, TheSameQuestionAfterUndoNeedsFreshLogits) {
  Talk talk;
  Script script(Ids("yes"));
  ASSERT_TRUE(talk.Ask(&script, "a?").ok());
  talk.chat.Undo();
  auto again = talk.Ask(&script, "a?");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->reused_tokens, Ids("<u>a?<a>").size() - 1);
}

TEST(Chat, DropsTheOldestTurnsWholeAndKeepsTheSystemText) {
  Talk talk;
  talk.chat.SetSystem("S");
  Script script(Ids("ok"), 60);
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(talk.Ask(&script, "question " + std::to_string(i)).ok()) << i;
  ASSERT_FALSE(talk.notices.empty());
  const auto history = nlohmann::json::parse(talk.chat.HistoryJson());
  EXPECT_EQ(history[0]["content"], "S");
  EXPECT_EQ(history[1]["role"], "user");
  EXPECT_NE(history[1]["content"], "question 0");
  EXPECT_EQ(history.back()["content"], "ok");
  EXPECT_LE(script.tokens().size(), 60u);
  EXPECT_NE(talk.notices[0].find("dropped"), std::string::npos);
}

TEST(Chat, ContextFillsInTheMiddleOfAnAnswer) {
  Talk talk;
  const std::string answer = "abcdefghijklmnopqrstuvwxyz";
  Script script(Ids("first"), 50);
  ASSERT_TRUE(talk.Ask(&script, "1234567890").ok());
  Script longer(Ids(answer), 50);
  longer.resume = true;
  auto result = talk.Ask(&longer, "go on");
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->text, answer);  // nothing lost or doubled at the seam
  EXPECT_EQ(result->finish_reason, "stop");
  EXPECT_EQ(result->dropped_turns, 1u);
  EXPECT_EQ(talk.notices.size(), 1u);
  EXPECT_EQ(longer.tokens(), Ids("<u>go on<a>" + answer));
  EXPECT_EQ(talk.chat.turns(), 1u);
}

TEST(Chat, AnAnswerThatNeverFitsEndsWithContextAndDropsNothingInVain) {
  Talk talk;
  Script script(Ids("ok"), 40);
  ASSERT_TRUE(talk.Ask(&script, "a").ok());
  Script endless(std::vector<TokenId>(500, 'x'), 40);
  endless.resume = true;
  auto result = talk.Ask(&endless, "b");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, "context");
  EXPECT_EQ(result->dropped_turns, 1u);  // it helped for a while
  EXPECT_EQ(endless.tokens().size(), 40u);
}

TEST(Chat, StopModeRefusesAndKeepsTheHistory) {
  Talk talk;
  talk.chat.SetContextFull(ContextFull::kStop);
  Script script(Ids("ok"), 30);
  ASSERT_TRUE(talk.Ask(&script, "12345").ok());
  const std::string before = talk.chat.HistoryJson();
  auto result = talk.Ask(&script, "123456789012345");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kContextFull);
  EXPECT_EQ(talk.chat.HistoryJson(), before);
}

TEST(Chat, FailuresLeaveTheHistoryAsItWas) {
  Talk talk;
  Script script(Ids("ok"), 60);
  ASSERT_TRUE(talk.Ask(&script, "one").ok());
  ASSERT_TRUE(talk.Ask(&script, "two").ok());
  const std::string before = talk.chat.HistoryJson();
  auto alone = talk.Ask(&script, std::string(100, 'x'));
  EXPECT_EQ(alone.status().code(), Code::kContextFull);
  EXPECT_NE(alone.status().ToString().find("alone"), std::string::npos);
  EXPECT_EQ(talk.Ask(&script, "BAD").status().what(), "chat template raised");
  script.fail_at = 30;
  EXPECT_EQ(talk.Ask(&script, "three").status().code(), Code::kIo);
  EXPECT_EQ(talk.chat.HistoryJson(), before);
  script.fail_at = -1;
  auto well = talk.Ask(&script, "three");
  ASSERT_TRUE(well.ok());
  EXPECT_EQ(script.tokens(), Ids("<u>one<a>ok<u>two<a>ok<u>three<a>ok"));
}

TEST(Chat, CancelledAnswers) {
  std::atomic<bool> cancel = true;
  GenerateOptions options = Greedy();
  options.cancel = &cancel;
  Talk talk;
  Script script(Ids("abcdef"));
  auto result = talk.Ask(&script, "q", options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->finish_reason, "cancelled");
  EXPECT_EQ(talk.chat.turns(), 0u);  // nothing was said: the question is forgotten
  cancel = false;
  options.on_text = [&](std::string_view) { cancel = true; };
  result = talk.Ask(&script, "q", options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "a");
  EXPECT_EQ(talk.chat.turns(), 1u);  // what was said stays
}

TEST(Chat, InvalidUtf8InAMessageBecomesValidJson) {
  Talk talk;
  Script script(Ids("ok"));
  ASSERT_TRUE(talk.Ask(&script, "\xC3(").ok());
  EXPECT_TRUE(nlohmann::json::accept(talk.chat.HistoryJson()));
}

}  // namespace
}  // namespace sluice
