// Chats process what is new and nothing else: a second chat with a long system prompt in the same
// process and after a restart, turn after turn, and edits; the texts are those of a cold run.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "api/chat_ids.h"
#include "api/text_model.h"
#include "base/cpu.h"
#include "sluice/generate.h"
#include "tests/pack/forge_support.h"
#include "tests/test_data.h"

namespace sluice {
namespace {

constexpr uint32_t kAnswerTokens = 12;

// The letters t, h and e and nothing else: no tokenizer would spell their text letter by letter.
GenerateOptions Letters(const Engine& engine) {
  GenerateOptions options;
  options.sampling.temperature = 1;
  options.sampling.seed = 7;
  options.max_tokens = kAnswerTokens;
  for (const char* letter : {"t", "h", "e"})
    options.sampling.logit_bias.emplace_back(engine.text()->FindToken(letter), 1000);
  return options;
}

// An engine with one chat at a time.
struct Room {
  Room(const std::string& model, const std::string& state_dir, uint32_t context = 2048) {
    EngineOptions options;
    options.context = context;
    options.threads = 2;
    options.budget_bytes = uint64_t{1} << 30;
    options.state_dir = state_dir;
    options.expert_slots = 8;  // of 48: experts stream
    Result<std::unique_ptr<Engine>> opened = Engine::Open(model, options);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    engine = std::move(*opened);
    Begin("");
  }
  void Begin(const std::string& system) {
    chat.reset();
    session.reset();  // a hybrid engine holds one timeline
    session = std::move(*Session::Create(engine.get()));
    chat = std::make_unique<Chat>(engine.get(), session.get());
    if (!system.empty()) chat->SetSystem(system);
    RenderOptions render;
    render.now_unix = 0;
    chat->SetTemplateOptions(render);
  }
  // Answers, and leaves the counts of this question alone in stats.
  GenerateResult Ask(const std::string& question) {
    engine->ResetStats();
    Result<GenerateResult> result = chat->Ask(question, Letters(*engine));
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    stats = engine->stats();
    return result.ok() ? std::move(*result) : GenerateResult();
  }
  std::vector<TokenId> Rendered(const std::string& system, const std::string& question) const {
    const nlohmann::json messages = {{{"role", "system"}, {"content", system}},
                                     {{"role", "user"}, {"content", question}}};
    RenderOptions render;
    render.now_unix = 0;
    return *engine->text()->RenderIds(messages.dump(), render);
  }
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Chat> chat;
  Stats stats;
};

size_t Pages(const std::string& state_dir) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(state_dir + "/prefix"))
    n += entry.path().extension() == ".page";
  return n;
}

// Thousands of tokens on a small model: seconds as they are, many minutes under a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kTooLong = "SKIP: takes minutes under a sanitizer; the release build runs it";
#else
constexpr const char* kTooLong = nullptr;
#endif

class ChatReuse : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    model_ = folder_ / "m.gguf";
    state_ = folder_ / "state";
    if (kind == "dense") {
      model_ = test::SharedPath("cases/dev/gguf/ok-llama-f32.gguf");
      if (!std::filesystem::exists(model_)) GTEST_SKIP() << "SKIP: no shared cases";
    } else {
      const bool hybrid = kind == "hybrid";
      ASSERT_TRUE(Forge(testing::Tiny(hybrid ? "qwen3.6-35b-a3b" : "qwen3-30b-a3b"), model_).ok());
    }
  }
  std::string SystemOf(const Room& room, uint32_t tokens) const {
    std::string text;
    for (int i = 0; room.engine->text()->Encode(text, false, false).size() < tokens; ++i)
      text += "Rule " + std::to_string(i) + ": the gate opens at seven. ";
    return text;
  }
  test::TempFolder folder_;
  std::string model_, state_;
};

TEST_P(ChatReuse, ASecondChatWithALongSystemPrompt) {
  if (kTooLong != nullptr) GTEST_SKIP() << kTooLong;
  const std::string questions[] = {"who?", "and where?", "tell me"};
  std::string system, want[3];
  size_t total[3];
  for (int i = 0; i < 3; ++i) {
    Room cold(model_, "");
    if (system.empty()) system = SystemOf(cold, 1000);
    cold.Begin(system);
    want[i] = cold.Ask(questions[i]).text;
    total[i] = cold.Rendered(system, questions[i]).size();
    EXPECT_EQ(cold.stats.prompt_tokens, total[i]);
    EXPECT_EQ(cold.stats.reused_tokens, 0u);
  }
  Room first(model_, state_);
  const auto a = first.Rendered(system, questions[0]), b = first.Rendered(system, questions[1]);
  const auto common =
      static_cast<uint64_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  EXPECT_GE(common, 1000u);
  first.Begin(system);
  EXPECT_EQ(first.Ask(questions[0]).text, want[0]);
  EXPECT_EQ(first.stats.prompt_tokens, total[0]);
  const size_t pages = Pages(state_);
  EXPECT_EQ(pages, first.session->length() / 64);
  const auto check = [&](Room* room, int i, uint64_t known) {
    room->Begin(system);
    EXPECT_EQ(room->Ask(questions[i]).text, want[i]);
    EXPECT_EQ(room->stats.reused_tokens, known);
    EXPECT_EQ(room->stats.prompt_tokens, total[i] - known);
    EXPECT_EQ(room->stats.recomputed_tokens, 0u);
    EXPECT_LE(room->stats.prompt_tokens * 20, total[i]) << "more than 5 %";
  };
  check(&first, 1, common);
  EXPECT_EQ(Pages(state_), pages + first.session->length() / 64 - common / 64) << "only its own";
  first.chat.reset();
  first.session.reset();
  first.engine.reset();
  Room again(model_, state_);
  check(&again, 2, common);
}

// What a fresh engine answers to the same questions, each in its turn.
std::vector<std::string> Fresh(const std::string& model, const std::vector<std::string>& turns) {
  Room room(model, "");
  std::vector<std::string> texts;
  for (const std::string& turn : turns) texts.push_back(room.Ask(turn).text);
  return texts;
}

TEST_P(ChatReuse, TurnsProcessOnlyWhatIsNewAndEditsTheRest) {
  const std::vector<std::string> turns = {"who was it then?", "and where?", "why"};
  const std::vector<std::string> want = Fresh(model_, turns);
  Room room(model_, "");
  uint32_t end[3];
  for (size_t i = 0; i < turns.size(); ++i) {
    const uint32_t before = room.session->length();
    const GenerateResult result = room.Ask(turns[i]);
    EXPECT_EQ(result.text, want[i]);
    EXPECT_EQ(result.ids.size(), kAnswerTokens);
    EXPECT_EQ(result.reused_tokens, before);
    EXPECT_EQ(room.stats.reused_tokens, before);
    EXPECT_EQ(room.stats.prompt_tokens, result.prompt_tokens - before);
    EXPECT_LT(room.stats.prompt_tokens, 60u);
    // The last token of a cut answer is picked, not processed.
    EXPECT_EQ(room.stats.decode_tokens, kAnswerTokens - 1);
    end[i] = room.session->length();
  }
  if (std::string(GetParam()) != "dense") {
    // The tokenizer would spell the answers otherwise: the counts depend on what was said. (The
    // vocabulary of the dense model has no words.)
    RenderOptions render;
    render.now_unix = 0;
    const auto spelled = *room.engine->text()->RenderIds(room.chat->HistoryJson(), render);
    const auto& said = room.session->tokens();
    ASSERT_LT(spelled.size(), said.size());
    EXPECT_FALSE(std::equal(said.begin(), said.begin() + end[0], spelled.begin()));
  }
  // An edited last message: the turns before it stay as they are.
  ASSERT_TRUE(room.chat->Undo());
  const GenerateResult edited = room.Ask("but when?");
  EXPECT_EQ(edited.text, Fresh(model_, {turns[0], turns[1], "but when?"})[2]);
  EXPECT_GE(room.stats.reused_tokens, end[1]);
  EXPECT_LT(room.stats.reused_tokens, end[1] + 40);  // the template's words, where they are kept
  EXPECT_EQ(room.stats.prompt_tokens, edited.prompt_tokens - room.stats.reused_tokens);
  EXPECT_EQ(room.stats.recomputed_tokens, 0u);
}

// The same, each turn by another engine: a session file and the store on flash.
TEST_P(ChatReuse, TurnsAfterRestartsProcessOnlyWhatIsNew) {
  const std::vector<std::string> turns = {"who was it then?", "and where?", "why"};
  const std::vector<std::string> want = Fresh(model_, turns);
  const std::string file = folder_ / "chat";
  uint32_t end = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    Room room(model_, state_);
    GenerateOptions options = Letters(*room.engine);
    if (i > 0) ASSERT_TRUE(room.chat->Load(file, &options).ok());
    const GenerateResult result = room.Ask(turns[i]);
    EXPECT_EQ(result.text, want[i]);
    EXPECT_EQ(room.stats.reused_tokens, end);
    EXPECT_EQ(room.stats.prompt_tokens, result.prompt_tokens - end);
    end = room.session->length();
    ASSERT_TRUE(room.chat->Save(file, options).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChatReuse, ::testing::Values("dense", "moe", "hybrid"),
                         [](const auto& info) { return std::string(info.param); });

// Case M14 where most is kept: 200 turns of a hybrid, everything forgotten after each fifth, pages
// and checkpoints in a store that is full long before: memory does not grow.
TEST(ChatReuseMemory, DoesNotGrowWithTurns) {
  if (kTooLong != nullptr) GTEST_SKIP() << kTooLong;
  // Some thousand files are flushed, which says nothing here: in memory where that can be.
  const bool in_memory = std::filesystem::exists("/dev/shm");
  const test::TempFolder folder(in_memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  ASSERT_TRUE(Forge(testing::Tiny("qwen3.6-35b-a3b"), folder / "m.gguf").ok());
  EngineOptions options;
  options.context = 512;
  options.threads = 1;
  options.budget_bytes = uint64_t{1} << 30;
  options.state_dir = folder / "state";
  options.prefix_store_bytes = 4 << 20;
  const auto engine = std::move(*Engine::Open(folder / "m.gguf", options));
  std::unique_ptr<Session> session = std::move(*Session::Create(engine.get()));
  auto chat = std::make_unique<Chat>(engine.get(), session.get());
  uint64_t early = 0;
  for (int turn = 0; turn < 300; ++turn) {
    if (turn % 5 == 0) chat->Clear();
    if (turn % 25 == 0) {
      chat.reset();
      session.reset();
      session = std::move(*Session::Create(engine.get()));
      chat = std::make_unique<Chat>(engine.get(), session.get());
    }
    GenerateOptions generate = Letters(*engine);
    generate.max_tokens = 4;
    const auto result = chat->Ask("question number " + std::to_string(turn), generate);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    if (turn == 99) early = ReadProcessMemory().rss_bytes;  // what grows once has grown
  }
  EXPECT_LT(ReadProcessMemory().rss_bytes, early + (2 << 20)) << "in 200 turns";
}

// Another system text in the same chat is remembered like the first.
TEST(ChatReuseMarks, ASystemTextThatCameLaterIsFoundAgain) {
  const test::TempFolder folder;
  ASSERT_TRUE(Forge(testing::Tiny("qwen3.6-35b-a3b"), folder / "m.gguf").ok());
  Room room(folder / "m.gguf", "");
  room.Ask("who?");
  std::string system;
  for (int i = 0; i < 30; ++i) system += "the gate opens at seven, ";
  room.chat->Clear();
  room.chat->SetSystem(system);
  room.Ask("who?");
  EXPECT_LT(room.stats.reused_tokens, 10u);
  room.chat->Clear();
  room.Ask("and where?");
  EXPECT_LT(room.stats.prompt_tokens, 40u);
  EXPECT_GT(room.stats.reused_tokens, 100u);
}

TEST(KeepKnownIds, TakesRunsOfTheSameBytesOnly) {
  const test::TempFolder folder;
  ASSERT_TRUE(Forge(testing::Tiny("qwen3-30b-a3b"), folder / "m.gguf").ok());
  const auto text = std::move(*TextModel::Open(folder / "m.gguf"));
  const Tokenizer& tokens = text->impl().tokenizer();
  const TokenId end = text->FindToken("<|im_end|>");
  const auto letters = [&](const std::string& word) {
    std::vector<TokenId> ids;
    for (char c : word) ids.push_back(text->FindToken(std::string(1, c)));
    return ids;
  };
  const auto join = [](std::vector<std::vector<TokenId>> parts) {
    std::vector<TokenId> out;
    for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
    return out;
  };
  const auto the = text->Encode("the", false, false), hat = text->Encode("hat", false, false);
  ASSERT_LT(the.size(), 3u);
  const auto known = join({hat, {end}, letters("the")});
  // The answer as it was said, then what is new, also where the answer is not the last.
  EXPECT_EQ(KeepKnownIds(tokens, known, join({hat, {end}, the, {end}, hat})),
            join({known, {end}, hat}));
  EXPECT_EQ(KeepKnownIds(tokens, join({known, {end}, hat}), join({hat, {end}, the, {end}, the})),
            join({known, {end}, the}));
  // Another word, another control token, a run that goes on: as rendered.
  for (const auto& other :
       {join({hat, {end}, hat, {end}}), join({hat, {end}, the, the, {end}}),
        join({hat, {text->FindToken("<|im_start|>")}, the, {end}}), join({the}), join({})}) {
    EXPECT_EQ(KeepKnownIds(tokens, known, other), other);
  }
  EXPECT_EQ(KeepKnownIds(tokens, {}, known), known);
}

}  // namespace
}  // namespace sluice
