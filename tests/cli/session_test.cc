// Chats that are kept in files: taken up again, killed, damaged, on full disks; and a long chat in
// a short context.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "api/session_file.h"
#include "sluice/engine.h"
#include "sluice/generate.h"
#include "tests/cli/process.h"

namespace sluice::test {
namespace {

class Kept : public testing::Test {
 protected:
  void SetUp() override {
    model_ = Shared("cases/dev/gguf/ok-llama-f32.gguf");
    if (model_.empty()) GTEST_SKIP() << "SKIP: no shared cases";
    file_ = dir_ / "chat";
  }
  ProcessResult Run(const std::vector<std::string>& more, const ProcessOptions& options = {}) {
    std::vector<std::string> args = {"run",   model_, "--session", file_,
                                     "--ctx", "2048", "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return Sluice(args, options);
  }
  Result<SessionFile> Parse() const {
    const std::string bytes = ReadFile(file_);
    return ParseSession({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file_);
  }
  TempFolder dir_;
  std::string model_, file_;
};

// One line says what is wrong, and it is the last.
bool OneError(const std::string& text) {
  const size_t at = text.find("sluice: error: ");
  return at != std::string::npos && text.find('\n', at) == text.size() - 1;
}

void Say(Terminal* terminal, const std::string& line) {
  terminal->Type(line + "\n");
  EXPECT_TRUE(terminal->WaitFor("\n> ", 60)) << terminal->screen();
}

// One question per process, options only the first time, against one process that is asked all.
TEST_F(Kept, QuestionByQuestionEqualsOneChat) {
  const std::vector<std::string> questions = {"who?", "and where?", "why"};
  for (const std::string& question : questions) {
    std::vector<std::string> args = {"-p", question};
    if (question == "who?") {
      args.insert(args.end(), {"--system", "be brief", "--seed", "5", "--temp", "1.4", "-n", "9",
                               "--repeat-penalty", "1.2", "--ignore-eos"});
    }
    const ProcessResult result = Run(args);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_FALSE(result.out.empty());
  }
  Terminal whole({"run", model_, "--ctx", "2048", "--threads", "1", "--system", "be brief",
                  "--seed", "5", "--temp", "1.4", "-n", "9", "--repeat-penalty", "1.2",
                  "--ignore-eos"});
  ASSERT_TRUE(whole.WaitFor("> ")) << whole.screen();
  for (const std::string& question : questions) Say(&whole, question);
  Say(&whole, "/save " + (dir_ / "whole.json"));
  Terminal kept({"run", model_, "--ctx", "2048", "--session", file_});
  ASSERT_TRUE(kept.WaitFor("3 turns so far")) << kept.screen();
  ASSERT_TRUE(kept.WaitFor("> ")) << kept.screen();
  Say(&kept, "/save " + (dir_ / "kept.json"));
  EXPECT_EQ(ReadFile(dir_ / "kept.json"), ReadFile(dir_ / "whole.json"));
  EXPECT_EQ(nlohmann::json::parse(ReadFile(dir_ / "kept.json")).size(), 7u);
  struct stat info {};
  ASSERT_EQ(stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(Kept, AnAnswerThatWasCutGoesOn) {
  const std::vector<std::string> same = {"--seed", "9", "--temp", "1.4"};
  std::vector<std::string> args = {"-p", "who?", "-n", "14", "--json"};
  args.insert(args.end(), same.begin(), same.end());
  const auto whole = nlohmann::json::parse(Run(args).out);
  std::filesystem::remove(file_);
  args[3] = "5";
  ASSERT_EQ(Run(args).code, 0);
  const ProcessResult rest = Run({"--continue", "-n", "9", "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const auto json = nlohmann::json::parse(rest.out);
  EXPECT_EQ(json["ids"], whole["ids"]);
  EXPECT_EQ(json["text"], whole["text"]);
  EXPECT_EQ(json["prompt_ids"], whole["prompt_ids"]);
  EXPECT_FALSE(whole["prompt_ids"].empty());
}

TEST_F(Kept, WhatMakesNoSenseIsRefusedAndNothingTouched) {
  EXPECT_EQ(Run({"-p", "x", "--private"}).code, 2);
  EXPECT_EQ(Run({"-p", "x", "--raw"}).code, 2);
  EXPECT_EQ(Run({"--ids", "1,2"}).code, 2);
  EXPECT_EQ(Run({"--continue", "-p", "x"}).code, 2);
  EXPECT_FALSE(Exists(file_));
  EXPECT_EQ(Sluice({"run", model_, "--continue"}).code, 2);
  ASSERT_EQ(Run({"-p", "who?", "-n", "3", "--greedy"}).code, 0);
  const std::string good = ReadFile(file_);
  model_ = Shared("cases/dev/gguf/ok-qwen3moe-f32.gguf");
  const ProcessResult other = Run({"-p", "why", "-n", "3"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("ok-llama-f32.gguf"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("ok-qwen3moe-f32.gguf"), std::string::npos) << other.err;
  EXPECT_EQ(ReadFile(file_), good);
  model_ = Shared("cases/dev/gguf/ok-llama-f32.gguf");
  for (const std::string& bad : {std::string(), good.substr(0, 1), good.substr(0, good.size() / 2),
                                 good.substr(0, good.size() - 1), "hello " + good}) {
    WriteFile(file_, bad);
    const ProcessResult result = Run({"-p", "why", "-n", "3"});
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_TRUE(OneError(result.err)) << result.err;
    EXPECT_NE(result.err.find(file_), std::string::npos) << result.err;
    EXPECT_TRUE(result.out.empty());
    EXPECT_EQ(ReadFile(file_), bad);
    EXPECT_EQ(dir_.files(), 1u);
  }
}

TEST_F(Kept, AFileThatCannotBeWrittenIsAnErrorAfterTheAnswer) {
  const ProcessResult want = Sluice({"run", model_, "-p", "who?", "-n", "6", "--greedy"});
  file_ = dir_ / "no-such-folder/chat";
  const ProcessResult result = Run({"-p", "who?", "-n", "6", "--greedy"});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.out, want.out);
  EXPECT_TRUE(OneError(result.err)) << result.err;
  // It is said before the model is loaded, too.
  EXPECT_TRUE(result.err.starts_with("sluice: note: the chat will not be kept: ")) << result.err;
  EXPECT_EQ(Sluice({"run", dir_ / "no.gguf", "--session", file_, "-p", "x"})
                .err.find("sluice: note: the chat will not be kept"),
            0u);
}

// A link to the file stays one: what it leads to is replaced.
TEST_F(Kept, ThroughALink) {
  const std::string target = file_;
  ASSERT_EQ(Run({"-p", "who?", "-n", "3", "--greedy"}).code, 0);
  const std::string first = ReadFile(target);
  file_ = dir_ / "link";
  std::filesystem::create_symlink(target, file_);
  ASSERT_EQ(Run({"-p", "why", "-n", "3"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(file_));
  EXPECT_NE(ReadFile(target), first);
  EXPECT_EQ(Parse()->chat.turns.size(), 2u);
}

// A07: killed at any moment, the file is the last whole one, and the chat goes on from there.
TEST_F(Kept, KilledAtRandomPoints) {
  std::mt19937 random(20);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(Run({"-p", "turn", "-n", "40", "--ignore-eos", "--seed", "3"}).code, 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  size_t turns = 1;
  int killed = 0;
  for (int i = 0; i < 20; ++i) {
    ProcessOptions options;
    options.kill_after_ms = static_cast<int>(random() % static_cast<unsigned>(took.count() + 2));
    const ProcessResult result = Run({"-p", "turn"}, options);
    killed += result.code == 128 + SIGKILL;
    const Result<SessionFile> session = Parse();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const size_t now = session->chat.turns.size();
    ASSERT_TRUE(now == turns || now == turns + 1) << now << " after " << turns;
    if (result.code == 0) EXPECT_EQ(now, turns + 1);
    turns = now;
  }
  EXPECT_GT(killed, 0);
  const ProcessResult last = Run({"-p", "turn"});
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(Parse()->chat.turns.size(), turns + 1);
}

// A07: stopped and woken in the middle of an answer.
TEST_F(Kept, StoppedAndContinued) {
  const std::vector<std::string> args = {"-p", "who?", "-n", "400", "--ignore-eos", "--seed", "3"};
  const ProcessResult want = Run(args);
  ASSERT_EQ(want.code, 0) << want.err;
  const std::string file = ReadFile(file_);
  std::filesystem::remove(file_);
  ProcessOptions options;
  options.stop_after_ms = 1;
  options.stop_for_ms = 700;
  const ProcessResult result = Run(args, options);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, want.out);
}

TEST_F(Kept, CommandsOfTheChat) {
  Terminal terminal({"run", model_, "--ctx", "512", "--greedy", "-n", "5", "--session", file_});
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  Say(&terminal, "one");
  ASSERT_TRUE(Exists(file_));
  EXPECT_EQ(Parse()->chat.turns.size(), 1u);
  Say(&terminal, "/continue");
  Say(&terminal, "/context-full summarise");
  EXPECT_EQ(Parse()->chat.context_full, ContextFull::kSummarise);
  EXPECT_EQ(Parse()->chat.turns.size(), 1u);
  EXPECT_EQ(Parse()->chat.timeline.size() - Parse()->chat.answer_at, 10u);
  Say(&terminal, "/context-full sometimes");
  Say(&terminal, "/save " + (dir_ / "copy"));
  EXPECT_NE(terminal.screen().find("(saved: " + (dir_ / "copy") + ")"), std::string::npos);
  Say(&terminal, "/clear");
  EXPECT_EQ(Parse()->chat.turns.size(), 0u);
  WriteFile(dir_ / "bad", "no session");
  Say(&terminal, "/load " + (dir_ / "bad"));
  EXPECT_NE(terminal.screen().find("not a session file"), std::string::npos);
  EXPECT_EQ(Parse()->chat.turns.size(), 0u);
  Say(&terminal, "/load " + (dir_ / "copy"));
  EXPECT_EQ(Parse()->chat.turns.size(), 1u);
  terminal.Type("/quit\n");
  EXPECT_EQ(terminal.WaitExit(), 0) << terminal.screen();
}

TEST_F(Kept, APrivateChatSavesNothing) {
  Terminal terminal({"run", model_, "--greedy", "-n", "3", "--private"});
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.screen();
  Say(&terminal, "one");
  Say(&terminal, "/save " + (dir_ / "x"));
  EXPECT_NE(terminal.screen().find("private"), std::string::npos);
  EXPECT_EQ(dir_.files(), 0u);
}

// A long chat with the small default model in 512 tokens: it goes on, the old turns live on in a
// summary, and the system text is in front of the model to the end.
TEST(LongChat, GoesOnInAShortContext) {
  const std::string model = DefaultModel();
  if (model.empty()) GTEST_SKIP() << "SKIP: no default model (tools/setup)";
  EngineOptions options;
  options.context = 512;
  auto engine = Engine::Open(model, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  auto session = Session::Create(engine->get());
  Chat chat(engine->get(), session->get());
  chat.SetSystem("You are the guide of the Heron Gate. The gate opens at 7:40.");
  chat.SetContextFull(ContextFull::kSummarise);
  GenerateOptions generate;
  generate.sampling.temperature = 0;
  generate.max_tokens = 40;
  uint32_t summarised = 0;
  for (int turn = 0; turn < 12 && summarised < 2; ++turn) {
    const auto result = chat.Ask("Tell me fact number " + std::to_string(turn) +
                                     " about rivers, and why it matters to a traveller.",
                                 generate);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_FALSE(result->text.empty());
    EXPECT_NE(result->finish_reason, "context");
    EXPECT_EQ(result->dropped_turns, 0u);
    summarised += result->summarised_turns > 0;
    const std::string seen = (*engine)->text()->Decode((*session)->tokens());
    EXPECT_NE(seen.find("The gate opens at 7:40."), std::string::npos);
    EXPECT_LE((*session)->length(), 512u);
  }
  EXPECT_EQ(summarised, 2u);
  const auto history = nlohmann::json::parse(chat.HistoryJson());
  const std::string system = history[0]["content"];
  EXPECT_TRUE(system.starts_with("You are the guide of the Heron Gate."));
  const size_t label = system.find("[Summary of the earlier conversation]\n");
  ASSERT_NE(label, std::string::npos);
  EXPECT_GT(system.size(), label + 60);
  EXPECT_EQ(system.find("[Summary", label + 1), std::string::npos);
  EXPECT_GE(chat.turns(), 3u);
}

}  // namespace
}  // namespace sluice::test
