// Session files: what comes back is what was written, and nothing else is believed.
#include "api/session_file.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/session_format.h"
#include "io/atomic_file.h"
#include "sluice/engine.h"
#include "sluice/generate.h"
#include "tests/temp_folder.h"
#include "tests/test_data.h"

namespace sluice {
namespace {

SessionFile Example() {
  SessionFile s;
  s.identity = {"tiny.gguf", "llama", "00ff", 283, "abcd"};
  s.chat.system = "be \xC3\x28 brief";  // broken UTF-8 comes back as it is
  s.chat.summary = "they met";
  s.chat.turns = {{"hi", "ho"}, {std::string("a\0b", 3), ""}};
  s.chat.context_full = ContextFull::kSummarise;
  s.chat.timeline = {1, 2, 282, 0};
  s.chat.answer_at = 2;
  s.chat.cut = true;
  s.render.extra_json = R"({"enable_thinking":false})";
  s.render.now_unix = 1741521600;
  s.generate.max_tokens = 12;
  s.generate.stops = {"STOP", "\n"};
  s.generate.ignore_eog = true;
  SamplingOptions& o = s.generate.sampling;
  o.temperature = 0.1 + 0.2;
  o.top_k = 7;
  o.dry_multiplier = 0.5;
  o.dry_breakers = {3, 4};
  o.dry_breaker_sequences = {{5, 6}, {7, 8, 9}};
  o.logit_bias = {{9, -INFINITY}, {10, 1.5}};
  o.seed = UINT64_MAX;
  return s;
}

TEST(SessionFile, ComesBackWhole) {
  const std::vector<uint8_t> bytes = SerializeSession(Example());
  const Result<SessionFile> back = ParseSession(bytes, "f");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(SerializeSession(*back), bytes);
  EXPECT_EQ(back->chat.system, Example().chat.system);
  EXPECT_EQ(back->chat.turns[1].user, std::string("a\0b", 3));
  EXPECT_EQ(back->chat.timeline, Example().chat.timeline);
  EXPECT_EQ(back->generate.sampling.seed, UINT64_MAX);
  EXPECT_EQ(back->generate.sampling.logit_bias[0].second, -INFINITY);
  EXPECT_EQ(back->generate.sampling.temperature, 0.1 + 0.2);
}

// I10, byte by byte: every length but the whole, every byte changed, bytes behind the end.
TEST(SessionFile, NoCutAndNoFlipIsBelieved) {
  const std::vector<uint8_t> bytes = SerializeSession(Example());
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Result<SessionFile> cut = ParseSession(ByteSpan(bytes).first(n), "f");
    ASSERT_FALSE(cut.ok()) << n;
    EXPECT_EQ(cut.status().code(), Code::kIo);
    EXPECT_EQ(cut.status().ToString().find('\n'), std::string::npos);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> flipped = bytes;
    flipped[i] ^= static_cast<uint8_t>(1u << (i % 8));
    EXPECT_FALSE(ParseSession(flipped, "f").ok()) << i;
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(ParseSession(longer, "f").ok());
}

TEST(SessionFile, SaysWhatIsWrong) {
  std::vector<uint8_t> bytes = SerializeSession(Example());
  const auto error = [&] { return ParseSession(bytes, "my.chat").status().ToString(); };
  EXPECT_NE(ParseSession({}, "my.chat").status().ToString().find("empty"), std::string::npos);
  bytes[8] = 2;
  EXPECT_NE(error().find("version 2, and this program reads up to 1"), std::string::npos);
  bytes[8] = 1;
  bytes.pop_back();
  EXPECT_NE(error().find("truncated"), std::string::npos) << error();
  EXPECT_NE(error().find("my.chat"), std::string::npos);
  bytes[0] = 'X';
  EXPECT_NE(error().find("not a session file"), std::string::npos);
}

// A file made with care, checksum and all, still cannot name what does not exist.
TEST(SessionFile, ContentIsChecked) {
  const std::function<void(SessionFile*)> bad[] = {
      [](SessionFile* s) { s->chat.timeline[0] = 283; },
      [](SessionFile* s) { s->chat.timeline[0] = -1; },
      [](SessionFile* s) { s->chat.answer_at = 5; },
      [](SessionFile* s) { s->chat.turns.clear(); },
      [](SessionFile* s) { s->chat.context_full = static_cast<ContextFull>(3); },
      [](SessionFile* s) { s->identity.vocab = 0; },
      [](SessionFile* s) { s->generate.max_tokens = -2; },
      [](SessionFile* s) { s->generate.stops = {""}; },
      [](SessionFile* s) { s->generate.sampling.temperature = NAN; },
      [](SessionFile* s) { s->generate.sampling.logit_bias[0].first = 283; },
      [](SessionFile* s) { s->generate.sampling.dry_breakers = {-5}; },
  };
  for (const auto& change : bad) {
    SessionFile s = Example();
    change(&s);
    ASSERT_TRUE(ParseSession(SerializeSession(Example()), "f").ok());
    EXPECT_EQ(ParseSession(SerializeSession(s), "f").status().code(), Code::kIo) << (&change - bad);
  }
}

TEST(SessionFile, AnotherModelIsNamed) {
  const ModelIdentity file = {"a.gguf", "llama", "00ff", 283, "abcd"};
  ModelIdentity here = file;
  here.name = "moved.gguf";
  EXPECT_TRUE(CheckIdentity(file, here, "f").ok());
  here.model = "11ee";
  const Status other = CheckIdentity(file, here, "f");
  EXPECT_EQ(other.code(), Code::kUsage);
  EXPECT_NE(other.ToString().find("'a.gguf' (llama, 283 tokens, 00ff)"), std::string::npos);
  EXPECT_NE(other.ToString().find("'moved.gguf' (llama, 283 tokens, 11ee)"), std::string::npos);
  here.vocabulary = "dcba";
  EXPECT_NE(CheckIdentity(file, here, "f").ToString().find("model and vocabulary"),
            std::string::npos);
}

std::string Tiny(const std::string& name) {
  return test::SharedPath("cases/dev/gguf/" + name + ".gguf");
}

// A chat on a tiny model: engine, session and chat together.
struct Room {
  explicit Room(const std::string& name, uint32_t context = 512) {
    EngineOptions options;
    options.context = context;
    options.threads = 1;
    engine = std::move(*Engine::Open(Tiny(name), options));
    session = std::move(*Session::Create(engine.get()));
    chat = std::make_unique<Chat>(engine.get(), session.get());
    generate.max_tokens = 12;
    generate.sampling.temperature = 1.5;
    generate.sampling.repeat_penalty = 1.3;
    generate.sampling.seed = 4711;
  }
  std::string Ask(const std::string& text) {
    const Result<GenerateResult> result = chat->Ask(text, generate);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? result->text : "";
  }
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Chat> chat;
  GenerateOptions generate;
};

class SavedChat : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Tiny("ok-llama-f32"))) GTEST_SKIP() << "SKIP: no shared cases";
  }
  std::string Bytes() const { return *ReadSmallFile(path_, 1 << 20); }
  const test::TempFolder folder_;
  const std::string path_ = folder_ / "chat";
};

const char* const kQuestions[] = {"who?", "and where?", "when was that", "why", "how come?"};

// Each turn in a process of its own (another engine, an empty timeline): the sampled text and the
// token ids are those of the chat that was never left.
TEST_F(SavedChat, GoesOnAsIfItHadNeverStopped) {
  for (const char* model : {"ok-llama-f32", "ok-qwen3moe-f32"}) {
    std::filesystem::remove(path_);
    Room whole(model);
    whole.chat->SetSystem("be brief");
    for (const char* question : kQuestions) {
      const std::string want = whole.Ask(question);
      Room part(model);
      if (std::filesystem::exists(path_)) {
        part.generate = {};
        ASSERT_TRUE(part.chat->Load(path_, &part.generate).ok());
      } else {
        part.chat->SetSystem("be brief");
      }
      EXPECT_EQ(part.Ask(question), want) << model << ": " << question;
      EXPECT_EQ(part.session->tokens(), whole.session->tokens());
      ASSERT_TRUE(part.chat->Save(path_, part.generate).ok());
      EXPECT_EQ(part.chat->HistoryJson(), whole.chat->HistoryJson());
    }
  }
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

// An answer stopped half way is finished by another process with the very same tokens.
TEST_F(SavedChat, AHalfAnswerGoesOn) {
  Room whole("ok-llama-f32");
  whole.generate.max_tokens = 20;
  const std::string want = whole.Ask("who?");
  for (int64_t n : {1, 7, 19}) {
    Room first("ok-llama-f32");
    first.generate.max_tokens = n;
    first.Ask("who?");
    ASSERT_TRUE(first.chat->Save(path_, first.generate).ok());
    Room second("ok-llama-f32");
    ASSERT_TRUE(second.chat->Load(path_, &second.generate).ok());
    ASSERT_TRUE(second.chat->can_continue());
    second.generate.max_tokens = 20 - n;
    const Result<GenerateResult> rest = second.chat->Continue(second.generate);
    ASSERT_TRUE(rest.ok()) << rest.status().ToString();
    EXPECT_EQ(rest->text, want);
    EXPECT_EQ(second.chat->HistoryJson(), whole.chat->HistoryJson());
  }
}

// I10: refused, the file and the chat as before, and what follows is what follows without it.
TEST_F(SavedChat, ADamagedFileChangesNothing) {
  Room fresh("ok-llama-f32");
  const std::string want[] = {fresh.Ask("who?"), fresh.Ask("why")};
  Room saved("ok-llama-f32");
  saved.Ask("something else");
  ASSERT_TRUE(saved.chat->Save(path_, saved.generate).ok());
  const std::string good = Bytes();
  std::vector<std::string> damaged = {"", good.substr(0, 1), good.substr(0, good.size() / 2),
                                      good.substr(0, good.size() - 1)};
  for (size_t at : {size_t{9}, size_t{17}, size_t{40}, size_t{60}, good.size() - 1}) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& bytes : damaged) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    Room room("ok-llama-f32");
    EXPECT_EQ(room.chat->Load(path_, &room.generate).code(), Code::kIo);
    EXPECT_EQ(Bytes(), bytes);
    EXPECT_EQ(room.Ask("who?"), want[0]);
    // In the middle of a chat, too.
    EXPECT_EQ(room.chat->Load(path_, &room.generate).code(), Code::kIo);
    EXPECT_EQ(room.Ask("why"), want[1]);
  }
}

TEST_F(SavedChat, AnotherModelIsRefused) {
  Room saved("ok-llama-f32");
  saved.Ask("who?");
  ASSERT_TRUE(saved.chat->Save(path_, saved.generate).ok());
  Room other("ok-qwen3moe-f32");
  const std::string before = other.chat->HistoryJson();
  const Status status = other.chat->Load(path_, &other.generate);
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_NE(status.ToString().find("ok-llama-f32.gguf"), std::string::npos);
  EXPECT_NE(status.ToString().find("ok-qwen3moe-f32.gguf"), std::string::npos);
  EXPECT_EQ(other.chat->HistoryJson(), before);
  // The same weights under another name are the same model.
  std::filesystem::copy_file(Tiny("ok-llama-f32"), folder_ / "moved.gguf");
  auto engine = Engine::Open(folder_ / "moved.gguf", {});
  ASSERT_TRUE(engine.ok());
  auto session = Session::Create(engine->get());
  GenerateOptions generate;
  EXPECT_TRUE(Chat(engine->get(), session->get()).Load(path_, &generate).ok());
  EXPECT_EQ(generate.sampling.seed, 4711u);
}

// Mounts a small file system over the folder; false where that is not allowed.
class SmallDisk {
 public:
  SmallDisk(const std::string& folder, const char* size) : folder_(folder) {
    const std::string options = std::string("size=") + size;
    mounted_ = mount("sluice", folder_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool MakeReadOnly() {
    return mount("sluice", folder_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  std::string folder_;
  bool mounted_;
};

// I09: 64 KiB of disk, then none to write to: the caller is told, nothing half remains, the file
// from before is whole, and the chat goes on.
TEST_F(SavedChat, AFullOrReadOnlyDisk) {
  SmallDisk disk(folder_.path(), "64k");
  if (!disk.mounted()) GTEST_SKIP() << "SKIP: may not mount a tmpfs here";
  Room room("ok-llama-f32");
  room.Ask("who?");
  ASSERT_TRUE(room.chat->Save(path_, room.generate).ok());
  const std::string good = Bytes();
  std::ofstream(folder_ / "filler") << std::string(100000, 'x');
  room.chat->SetSystem(std::string(30000, 's'));
  const Status full = room.chat->Save(path_, room.generate);
  EXPECT_EQ(full.code(), Code::kIo);
  EXPECT_NE(full.ToString().find(path_), std::string::npos) << full.ToString();
  EXPECT_EQ(folder_.files(), 2u);
  EXPECT_EQ(Bytes(), good);
  room.chat->SetSystem("");
  EXPECT_FALSE(room.Ask("and where?").empty());
  std::filesystem::remove(folder_ / "filler");
  EXPECT_TRUE(room.chat->Save(path_, room.generate).ok());
  ASSERT_TRUE(disk.MakeReadOnly());
  EXPECT_EQ(room.chat->Save(path_, room.generate).code(), Code::kIo);
  EXPECT_EQ(folder_.files(), 1u);
  EXPECT_FALSE(room.Ask("why").empty());
}

uint64_t RssBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// M14: 200 turns, everything forgotten after each fifth, saved each time: memory does not grow.
TEST_F(SavedChat, MemoryDoesNotGrowWithTurns) {
  Room room("ok-llama-f32");
  uint64_t at_100 = 0;
  for (int turn = 0; turn < 300; ++turn) {
    if (turn % 5 == 0) room.chat->Clear();
    if (turn % 25 == 0) room.session = std::move(*Session::Create(room.engine.get()));
    if (turn % 25 == 0) room.chat = std::make_unique<Chat>(room.engine.get(), room.session.get());
    room.Ask("question number " + std::to_string(turn));
    ASSERT_TRUE(room.chat->Save(path_, room.generate).ok());
    if (turn == 99) at_100 = RssBytes();  // what grows once has grown
  }
  EXPECT_LT(RssBytes(), at_100 + (2 << 20)) << "in 200 turns";
}

}  // namespace
}  // namespace sluice
