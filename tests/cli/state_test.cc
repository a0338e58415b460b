// What a user sees of kept state: counts in --stats and --json, session files that are refused
// before a model is loaded, answers saved on their way, pauses, contexts that fill, and a bench
// that stores nothing.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "api/session_file.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Words Join(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Result<SessionFile> Parse(const std::string& path) {
  const std::string bytes = ReadFile(path);
  return ParseSession({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
}

// A tiny hybrid: three delta-net layers, one with attention, sixteen experts.
std::string ForgeHybrid(const TempFolder& folder) {
  const std::string path = folder / "hybrid.gguf";
  const ProcessResult result =
      Sluice({"forge", "qwen3.6-35b-a3b", path,  "--layers",      "4",    "--experts",
              "16",    "--used",          "3",   "--hidden",      "256",  "--ff",
              "256",   "--heads",         "4",   "--kv-heads",    "2",    "--head-dim",
              "64",    "--vocab",         "640", "--context",     "2048", "--shared-ff",
              "256",   "--key-heads",     "2",   "--value-heads", "4",    "--delta-dim",
              "64"});
  EXPECT_EQ(result.code, 0) << result.err;
  return path;
}

TEST(HybridChat, TurnsInProcessesOfTheirOwnProcessOnlyWhatIsNew) {
  const TempFolder folder;
  const std::string model = ForgeHybrid(folder);
  const Words chat = {"run",         model,
                      "--session",   folder / "chat",
                      "--state-dir", folder / "state",
                      "--ctx",       "512",
                      "--threads",   "1",
                      "--greedy",    "-n",
                      "5",           "-p"};
  uint64_t end = 0;
  for (const char* question : {"who was it then?", "and where?", "why"}) {
    const ProcessResult result = Sluice(Join(chat, {question, "--json"}));
    ASSERT_EQ(result.code, 0) << result.err;
    const json answer = json::parse(result.out), stats = answer["stats"];
    const uint64_t prompt = answer["prompt_ids"].size();
    EXPECT_EQ(stats["reused_tokens"], end) << question;
    EXPECT_EQ(stats["prompt_tokens"], prompt - end) << question;
    end = prompt + answer["ids"].size() - 1;  // the last token is picked, not processed
  }
  // The last message again, edited: from a file of before it.
  const ProcessResult table = Sluice(Join(chat, {"and who?", "--stats"}));
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(
      table.err.find(" prompt tokens processed, " + std::to_string(end) + " were known already"),
      std::string::npos)
      << table.err;
}

// The same command again, in a process of its own: one token is processed, for its logits.
TEST(HybridRun, TheSamePromptAgainIsKnown) {
  const TempFolder folder;
  const std::string model = ForgeHybrid(folder);
  std::string ids;
  for (int i = 0; i < 300; ++i)
    ids += (i > 0 ? "," : "") + std::to_string((7 * i * i + i) % 600 + 1);
  const Words run = {"run", model,         "--ids",          ids,     "-n",
                     "5",   "--greedy",    "--ctx",          "512",   "--threads",
                     "1",   "--state-dir", folder / "state", "--json"};
  const json first = json::parse(Sluice(run).out), again = json::parse(Sluice(run).out);
  EXPECT_EQ(first["stats"]["reused_tokens"], 0);
  EXPECT_EQ(again["stats"]["reused_tokens"], 299);
  EXPECT_EQ(again["stats"]["prompt_tokens"], 1) << "it belongs to the prompt, not to the answer";
  EXPECT_EQ(again["stats"]["decode_tokens"], first["stats"]["decode_tokens"]);
  EXPECT_GT(again["stats"]["ttft_s"], again["stats"]["load_s"]);
  EXPECT_EQ(again["ids"], first["ids"]);
  EXPECT_EQ(again["stats"]["logits_hash"], first["stats"]["logits_hash"]);
}

TEST(HybridChat, TheTerminalShowsTheCountsOfEachTurn) {
  const TempFolder folder;
  const std::string model = ForgeHybrid(folder);
  Terminal terminal({"run", model, "--ctx", "512", "--threads", "1", "--greedy", "-n", "5",
                     "--no-prefix-store", "--stats"});
  ASSERT_TRUE(terminal.WaitFor("> ", 60)) << terminal.screen();
  terminal.Type("who was it then?\n");
  ASSERT_TRUE(terminal.WaitFor(" prompt tokens processed, 0 were known already; 5 answered", 60))
      << terminal.screen();
  terminal.Type("and where?\n");
  ASSERT_TRUE(terminal.WaitFor("5 answered", 60)) << terminal.screen();
  EXPECT_EQ(terminal.screen().rfind(" 0 were known"), terminal.screen().find(" 0 were known"));
  terminal.Type("/quit\n");
  EXPECT_EQ(terminal.WaitExit(), 0);
}

// The model is not there at all: only the file was looked at.
TEST(SessionBeforeModel, IsRefusedBeforeAnythingIsLoaded) {
  const TempFolder folder;
  const std::string file = folder / "chat", model = folder / "none.gguf";
  const Words run = {"run", model, "--session", file, "-p", "x"};
  for (const std::string& bytes :
       {std::string(), std::string("no session"), std::string("SLUICESF\x01", 9)}) {
    WriteFile(file, bytes);
    const ProcessResult result = Sluice(run);
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_NE(result.err.find("session file"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(file), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("none.gguf"), std::string::npos) << result.err;
    EXPECT_EQ(ReadFile(file), bytes);
  }
  std::filesystem::remove(file);
  const ProcessResult nothing = Sluice({"run", model, "--session", file, "--continue"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_NE(nothing.err.find("no chat to continue"), std::string::npos) << nothing.err;
}

class TinyChat : public testing::Test {
 protected:
  void SetUp() override {
    model_ = Shared("cases/dev/gguf/ok-llama-f32.gguf");
    if (model_.empty()) GTEST_SKIP() << "SKIP: no shared cases";
    file_ = folder_ / "chat";
  }
  Words Run(const Words& more, const std::string& ctx = "2048") const {
    return Join({"run", model_, "--session", file_, "--ctx", ctx, "--threads", "1", "--state-dir",
                 folder_ / "state"},
                more);
  }
  const TempFolder folder_;
  std::string model_, file_;
};

// A07: killed in the middle of an answer, nothing but its last tokens is lost: the file holds the
// answer so far, what was computed for the prompt is on flash, and --continue goes on token for
// token.
TEST_F(TinyChat, KilledInMidAnswerGoesOn) {
  const Words ask = {
      "-p",          std::string(300, 'w') + "?", "--seed", "3", "--temp", "1.4", "-n", "900",
      "--ignore-eos"};
  const ProcessResult whole = Sluice(Run(Join(ask, {"--json"})));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const json want = json::parse(whole.out);
  bool cut = false;
  for (int ms = 40; ms < 20000 && !cut; ms += ms / 2) {
    std::filesystem::remove(file_);
    std::filesystem::remove_all(folder_ / "state");
    ProcessOptions options;
    options.kill_after_ms = ms;
    const ProcessResult killed = Sluice(Run(Join(ask, {"--save-every", "0"})), options);
    if (killed.code != 128 + SIGKILL) break;
    // A second save tells that what the first one kept is on flash.
    const Result<SessionFile> saved = Parse(file_);
    cut = saved.ok() && saved->chat.timeline.size() > saved->chat.answer_at + size_t{1};
  }
  ASSERT_TRUE(cut) << "never killed between the second save and the last token";
  const Result<SessionFile> saved = Parse(file_);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_TRUE(saved->chat.cut);
  ASSERT_EQ(saved->chat.turns.size(), 1u);
  const uint64_t prompt = want["prompt_ids"].size();
  const uint64_t known = saved->chat.timeline.size() - saved->chat.answer_at;
  EXPECT_EQ(saved->chat.answer_at, prompt);
  EXPECT_GT(known, 0u);
  EXPECT_LT(known, 900u);
  const ProcessResult rest =
      Sluice(Run({"--continue", "-n", std::to_string(900 - known), "--json"}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  const json got = json::parse(rest.out);
  EXPECT_EQ(got["ids"], want["ids"]);
  EXPECT_EQ(got["text"], want["text"]);
  EXPECT_GE(got["stats"]["reused_tokens"], prompt / 64 * 64);
}

// A07: a long pause is no work. Nothing times out, the text is the same, and the rate is that of
// the time at work.
TEST_F(TinyChat, APauseIsNoTimeAtWork) {
  const Words ask = {"-p", "who?", "-n", "1500", "--ignore-eos", "--seed", "3", "--stats"};
  const ProcessResult want = Sluice(Run(ask));
  ASSERT_EQ(want.code, 0) << want.err;
  std::filesystem::remove(file_);
  ProcessOptions options;
  options.stop_after_ms = 1;
  options.stop_for_ms = 2000;
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = Sluice(Run(ask), options);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, want.out);
  ASSERT_GT(wall.count(), 2.0) << "it was done before it was stopped";
  // "  decode   2345.6 tok/s  1499 tokens"
  const size_t at = result.err.find("\n  decode ");
  ASSERT_NE(at, std::string::npos) << result.err;
  const double rate = std::stod(result.err.substr(at + 10));
  EXPECT_LT(1499 / rate, wall.count() - 1.6) << "the pause was counted";
}

// A small file system of its own; unmounted with the object.
class SmallDisk {
 public:
  explicit SmallDisk(const char* size) {
    mounted_ = mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, size) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  // The kernel frees a nameless file after its process has ended, io_uring's some time later.
  bool WaitUntilEmpty() const {
    for (int i = 0; i < 500; ++i, usleep(10000)) {
      struct statvfs now {};
      if (statvfs(folder_.path().c_str(), &now) != 0) return false;
      if (now.f_bfree == now.f_blocks) return true;
    }
    return false;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const TempFolder folder_;
  bool mounted_ = false;
};

// The disk of the spilled KV is full in the middle of an answer that was saved on its way: the
// conversation is as before the question, and so is its file.
TEST_F(TinyChat, AnErrorInMidAnswerLeavesTheFileAsItWas) {
  const SmallDisk disk("size=128k");
  if (!disk.mounted()) GTEST_SKIP() << "SKIP: mounting a tmpfs needs root";
  // A seed whose answer has text: this model may also repeat a token without any.
  const Words ask = {"-p",           "why",           "--seed",   "3",
                     "--temp",       "1.4",           "-n",       "1700",
                     "--ignore-eos", "--save-every",  "0.001",    "--kv-memory",
                     "256",          "--scratch-dir", disk.path()};
  const auto fails = [&] {
    ASSERT_TRUE(disk.WaitUntilEmpty());
    const ProcessResult result = Sluice(Run(ask));
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_FALSE(result.out.empty()) << "it failed before the answer began";
    EXPECT_NE(result.err.find(disk.path()), std::string::npos) << result.err;
  };
  fails();
  EXPECT_FALSE(Exists(file_)) << "a new chat without a turn";
  ASSERT_EQ(Sluice(Run({"-p", "who?", "-n", "20", "--seed", "3"})).code, 0);
  const std::string before = ReadFile(file_);
  ASSERT_FALSE(before.empty());
  fails();
  EXPECT_EQ(ReadFile(file_), before);
  EXPECT_EQ(folder_.files(), 2u) << "the chat and the state folder: no temporary stays";
  EXPECT_EQ(Sluice(Run({"-p", "and now?", "-n", "5"})).code, 0);
  EXPECT_EQ(Parse(file_)->chat.turns.size(), 2u);
}

// An eighth of the context in memory, the rest on the disk: the same ids and the same logits.
TEST_F(TinyChat, ALongContextInAnEighthOfItsMemory) {
  const Words ask = {
      "run",          model_,  "-p",   std::string(1700, 'w'), "-n",    "200", "--greedy",
      "--ignore-eos", "--ctx", "2048", "--no-prefix-store",    "--json"};
  const json whole = json::parse(Sluice(ask).out);
  const json spilled =
      json::parse(Sluice(Join(ask, {"--kv-memory", "256", "--scratch-dir", folder_.path()})).out);
  EXPECT_GT(whole["prompt_ids"].size(), 1000u);
  EXPECT_EQ(spilled["ids"], whole["ids"]);
  EXPECT_EQ(spilled["stats"]["logits_hash"], whole["stats"]["logits_hash"]);
  EXPECT_EQ(whole["stats"]["kv_spilled_bytes"], 0);
  EXPECT_GT(spilled["stats"]["kv_spilled_bytes"], 0);
  EXPECT_GT(spilled["stats"]["kv_spill_bytes_per_token"], 0);
  EXPECT_EQ(folder_.files(), 0u) << "the file has no name";
}

// A context of 256 tokens and a turn of some 70: what --context-full says happens, the system text
// stays, and so do the last turns.
class FullContext : public TinyChat {
 protected:
  ProcessResult Turn(const std::string& question, const std::string& mode) {
    return Sluice(Run({"-p", question, "-n", "24", "--greedy", "--ignore-eos", "--context-full",
                       mode, "--system", "be brief", "--json"},
                      "256"));
  }
  // Asks until the context is full; false when it never is. *before: the state before that turn.
  bool Fill(const std::string& mode, ProcessResult* last, std::string* before) {
    for (int i = 0; i < 12; ++i) {
      *before = ReadFile(file_);
      *last = Turn("question number " + std::to_string(i), mode);
      if (last->code != 0 || last->err.find("context is full") != std::string::npos) return true;
    }
    return false;
  }
  static std::string Question(const SessionFile& session, size_t from_end) {
    return session.chat.turns[session.chat.turns.size() - from_end].user;
  }
};

TEST_F(FullContext, StopRefusesAndChangesNothing) {
  ProcessResult last;
  std::string before;
  ASSERT_TRUE(Fill("stop", &last, &before));
  EXPECT_EQ(last.code, 6) << last.err;
  const Result<SessionFile> session = Parse(file_);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->chat.system, "be brief");
  EXPECT_EQ(session->chat.turns[0].user, "question number 0") << "nothing is dropped";
  if (last.out.empty()) EXPECT_EQ(ReadFile(file_), before) << "refused at once";
}

// Taken up in a smaller context: room is made if there are turns to drop, else one line says what
// it takes, and the file stays as it is.
TEST_F(FullContext, AnAnswerThatWasCutInALargerOne) {
  const Words same = {"--greedy", "--ignore-eos", "--no-prefix-store"};
  ASSERT_EQ(Sluice(Run(Join({"-p", std::string(60, 'w'), "-n", "40"}, same))).code, 0);
  ASSERT_EQ(Sluice(Run(Join({"-p", "who?", "-n", "40"}, same))).code, 0);
  const std::string before = ReadFile(file_);
  const uint64_t all = Parse(file_)->chat.timeline.size();
  const Words go_on = Join({"--continue", "-n", "5"}, same);
  for (const char* mode : {"stop", "drop"}) {
    const bool stop = mode == std::string("stop");
    const ProcessResult result =
        Sluice(Run(Join(go_on, {"--context-full", mode}), std::to_string(stop ? all - 1 : 40)));
    EXPECT_EQ(result.code, 6) << mode << result.err;
    EXPECT_NE(result.err.find("the answer that was cut needs "), std::string::npos) << result.err;
    EXPECT_EQ(ReadFile(file_), before) << mode;
  }
  const ProcessResult fits = Sluice(Run(go_on, std::to_string(all - 1)));
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_NE(fits.err.find("the oldest turn was dropped"), std::string::npos) << fits.err;
  EXPECT_EQ(Parse(file_)->chat.turns.size(), 1u);
}

// With nothing left to drop, the error says what needs the room, and nothing changes.
TEST_F(FullContext, ASystemTextThatFillsItIsRefused) {
  const std::string many(2000, 'w');
  for (const char* mode : {"stop", "drop", "summarise"}) {
    const ProcessResult result = Sluice(Run(
        {"-p", "who?", "-n", "9", "--context-full", mode, "--system", many, "--greedy"}, "256"));
    EXPECT_EQ(result.code, 6) << mode << result.err;
    EXPECT_NE(result.err.find("the system text and this message alone need"), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("--ctx"), std::string::npos) << result.err;
    EXPECT_FALSE(Exists(file_)) << mode;
  }
}

TEST_F(FullContext, DropLeavesTheOldestTurnsOut) {
  ProcessResult last;
  std::string before;
  ASSERT_TRUE(Fill("drop", &last, &before));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_NE(last.err.find("dropped"), std::string::npos) << last.err;
  const Result<SessionFile> session = Parse(file_);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->chat.system, "be brief");
  EXPECT_TRUE(session->chat.summary.empty());
  EXPECT_NE(session->chat.turns[0].user, "question number 0");
  ASSERT_GE(session->chat.turns.size(), 2u);
  std::filesystem::remove(file_ + ".old");
  WriteFile(file_ + ".old", before);
  const Result<SessionFile> old = Parse(file_ + ".old");
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(Question(*session, 2), Question(*old, 1)) << "the newest turn stays";
  EXPECT_EQ(session->chat.turns[session->chat.turns.size() - 2].answer,
            old->chat.turns.back().answer);
  const json answer = json::parse(last.out);
  std::string ids;
  for (const json& id : answer["prompt_ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  const ProcessResult text = Sluice({"tokenize", model_, "--decode", "--ids", ids});
  EXPECT_NE(text.out.find("be brief"), std::string::npos) << "the model sees the system text";
}

TEST_F(FullContext, SummariseReplacesThemByASummary) {
  ProcessResult last;
  std::string before;
  ASSERT_TRUE(Fill("summarise", &last, &before));
  ASSERT_EQ(last.code, 0) << last.err;
  const Result<SessionFile> session = Parse(file_);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->chat.system, "be brief");
  EXPECT_NE(session->chat.turns[0].user, "question number 0");
  WriteFile(file_ + ".old", before);
  const Result<SessionFile> old = Parse(file_ + ".old");
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(Question(*session, 2), Question(*old, 1)) << "the newest turns stay";
  // A random model may say nothing that can serve; then the turns are dropped, and why is said.
  const bool summed_up = last.err.find("replaced by a summary") != std::string::npos;
  EXPECT_EQ(summed_up, !session->chat.summary.empty()) << last.err;
  if (!summed_up) EXPECT_NE(last.err.find("a summary did not help"), std::string::npos) << last.err;
}

TEST(Bench, StoresNothingUnlessAsked) {
  const TempFolder folder;
  const std::string model = ForgeHybrid(folder);
  const Words bench = {"bench",           model, "--ctx",    "512", "--threads",   "1",
                       "--prompt-tokens", "20",  "--decode", "2",   "--state-dir", folder / "state",
                       "--json"};
  const ProcessResult plain = Sluice(Join(bench, {"--repeat", "2"}));
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_FALSE(Exists(folder / "state/prefix"));
  EXPECT_EQ(json::parse(plain.out)["reused_tokens"], 0);
  // Asked: the second run finds the beginning in memory, the next process on flash.
  const Words shared = Join(bench, {"--prefix-tokens", "200"});
  const json first = json::parse(Sluice(Join(shared, {"--repeat", "2"})).out);
  EXPECT_EQ(first["runs"][0]["reused_tokens"], 0);
  EXPECT_EQ(first["runs"][0]["prompt_tokens"], 220);
  EXPECT_EQ(first["runs"][1]["reused_tokens"], 200);
  EXPECT_EQ(first["runs"][1]["prompt_tokens"], 20);
  const json later = json::parse(Sluice(Join(shared, {"--repeat", "1", "--seed", "2"})).out);
  EXPECT_EQ(later["runs"][0]["reused_tokens"], 200);
  EXPECT_EQ(later["runs"][0]["prompt_tokens"], 20);
}

}  // namespace
}  // namespace sluice::test
