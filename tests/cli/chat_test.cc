// The chat at a pseudo-terminal with the real small model: history, commands, Ctrl-C, multi-line
// input.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace sluice::test {
namespace {

class Conversation : public testing::Test {
 protected:
  void SetUp() override {
    model_ = DefaultModel();
    if (model_.empty()) GTEST_SKIP() << "SKIP: no default model (tools/setup)";
  }
  std::vector<std::string> Args(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"run", model_, "--greedy", "--ctx", "512", "-n", "12"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // The conversation so far; commands are carried out in the order they were typed.
  nlohmann::json Saved(Terminal* terminal, const std::string& path) {
    terminal->Type("/save " + path + "\n");
    for (int i = 0; i < 600 && !Exists(path); ++i) terminal->WaitFor("\n> ", 0.05);
    return nlohmann::json::parse(ReadFile(path), nullptr, false);
  }
  std::string model_;
};

TEST_F(Conversation, HistoryCommandsAndQuit) {
  TempFolder dir;
  Terminal terminal(Args({"--system", "You are terse.", "--act", "f32"}));
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  terminal.Type("What is the capital of France?\n");
  EXPECT_TRUE(terminal.WaitFor("Paris", 60)) << terminal.screen();
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  terminal.Type("first line\\\nsecond line\n");
  ASSERT_TRUE(terminal.WaitFor(". ")) << terminal.screen();
  ASSERT_TRUE(terminal.WaitFor("\n> ", 60)) << terminal.screen();
  auto saved = Saved(&terminal, dir / "a.json");
  ASSERT_EQ(saved.size(), 5u) << terminal.screen();
  EXPECT_EQ(saved[0]["content"], "You are terse.");
  EXPECT_EQ(saved[3]["content"], "first line\nsecond line");
  terminal.Type("/undo\n");
  EXPECT_TRUE(terminal.WaitFor("(forgotten; 1 turn left)")) << terminal.screen();
  EXPECT_EQ(Saved(&terminal, dir / "b.json").size(), 3u);
  terminal.Type("/set temp 3x\n");
  EXPECT_TRUE(terminal.WaitFor("'3x' is not a number")) << terminal.screen();
  terminal.Type("/set top-k 7\n/set\n");
  EXPECT_TRUE(terminal.WaitFor("top-k 7, top-p ")) << terminal.screen();
  terminal.Type("/frob\n");
  EXPECT_TRUE(terminal.WaitFor("unknown command /frob")) << terminal.screen();
  terminal.Type("/stats\n");
  EXPECT_TRUE(terminal.WaitFor("peak memory")) << terminal.screen();
  terminal.Type("/clear\n");
  EXPECT_EQ(Saved(&terminal, dir / "c.json").size(), 1u);
  terminal.Type("/quit\n");
  EXPECT_EQ(terminal.WaitExit(), 0) << terminal.screen();
}

TEST_F(Conversation, BlockInputAndEndOfFile) {
  TempFolder dir;
  Terminal terminal(Args());
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  terminal.Type("\"\"\"\none\n\ntwo\\\n\"\"\"\n");
  ASSERT_TRUE(terminal.WaitFor("\n> ", 60)) << terminal.screen();
  const auto saved = Saved(&terminal, dir / "a.json");
  ASSERT_EQ(saved.size(), 2u) << terminal.screen();
  EXPECT_EQ(saved[0]["content"], "one\n\ntwo\\");
  terminal.Type("\x04");
  EXPECT_EQ(terminal.WaitExit(), 0) << terminal.screen();
}

TEST_F(Conversation, CtrlCStopsTheAnswerThenTwiceTheProgram) {
  std::vector<std::string> args = Args();
  args[6] = "-1";
  args.push_back("--ignore-eos");
  Terminal terminal(args);
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  terminal.Type("Tell me a long story about a river and a gate.\n");
  ASSERT_TRUE(terminal.WaitFor("the", 60)) << terminal.screen();
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.WaitFor("(stopped)")) << terminal.screen();
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  terminal.Type("half a line\x03");
  ASSERT_TRUE(terminal.WaitFor("Ctrl-C again")) << terminal.screen();
  terminal.Type("\x03");
  EXPECT_EQ(terminal.WaitExit(), 0) << terminal.screen();
}

TEST_F(Conversation, OldTurnsAreDroppedWithANotice) {
  Terminal terminal({"run", model_, "--greedy", "--ctx", "96", "-n", "20"});
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  bool noticed = false;
  for (int i = 0; i < 5 && !noticed; ++i) {
    terminal.Type("Question number " + std::to_string(i) + ": name a river.\n");
    ASSERT_TRUE(terminal.WaitFor("\n> ", 60)) << terminal.screen();
    noticed = terminal.screen().find("the context is full") != std::string::npos;
  }
  EXPECT_TRUE(noticed) << terminal.screen();
  // In the middle of an answer, too, it has a line of its own.
  for (size_t at = 0; (at = terminal.screen().find("sluice: note", at)) != std::string::npos;
       ++at) {
    const size_t line = terminal.screen().rfind('\n', at);
    ASSERT_NE(line, std::string::npos);
    EXPECT_LE(at - line, 1 + sizeof("\033[2m")) << terminal.screen();
  }
}

// At a terminal a long prompt shows a bar with the time left, and removes it before the answer.
TEST_F(Conversation, ProgressBar) {
  std::string prompt;
  for (int i = 0; i < 20; ++i) prompt += "The river goes to the sea. ";
  Terminal terminal({"run", model_, "-p", prompt, "-n", "2", "--greedy", "--ctx", "512", "--chunk",
                     "16", "--act", "f32", "--threads", "1", "--no-prefix-store"});
  EXPECT_TRUE(terminal.WaitFor("prefill  [", 60)) << terminal.screen();
  EXPECT_TRUE(terminal.WaitFor(" left", 60)) << terminal.screen();
  EXPECT_EQ(terminal.WaitExit(60), 0) << terminal.screen();
  const std::string& screen = terminal.screen();
  EXPECT_GT(screen.rfind("\r\033[K"), screen.rfind(" left")) << screen;
}

TEST_F(Conversation, InterruptInOneShotMode) {
  ProcessOptions options;
  options.interrupt_after_ms = 300;
  const ProcessResult result = Sluice(
      {"run", model_, "-p", "Tell me a long story.", "--greedy", "--ignore-eos", "--ctx", "2048"},
      options);
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_NE(result.err.find("cancelled"), std::string::npos) << result.err;
  EXPECT_FALSE(result.out.empty());
}

TEST_F(Conversation, CapitalOfFranceInABudgetBelowTheFile) {
  const ProcessResult result =
      Sluice({"run", model_, "-p", "What is the capital of France?", "--greedy", "-n", "32",
              "--budget", "72M", "--ctx", "512", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_NE(json["text"].get<std::string>().find("Paris"), std::string::npos) << result.out;
  EXPECT_LE(result.peak_rss_bytes, 72u << 20);
  EXPECT_EQ(json["stats"]["budget_bytes"], 72u << 20);
}

}  // namespace
}  // namespace sluice::test
