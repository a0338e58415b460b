// KV that spills: a context of which a quarter fits the memory planned for it gives the bits of a
// resident one, on every kind of attention; disks that are full or lie are errors of one request.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/gates/engine_gate.h"
#include "tests/temp_folder.h"

namespace sluice {
namespace {

constexpr uint32_t kContext = 1024, kResident = 256;

using test::Go;
using test::Logits;
using test::Text;

class SpillGate : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = test::GoldenModel(GetParam());
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "SKIP: no golden data at " << path_;
  }
  void TearDown() override {
    if (mounted_) umount2(scratch_.path().c_str(), MNT_DETACH);
  }
  EngineOptions Options(uint32_t resident, uint32_t chunk = 0) const {
    EngineOptions options = test::GateOptions(kContext, uint64_t{1} << 30);
    options.kv_memory_tokens = resident;
    options.chunk = chunk;
    options.scratch_dir = scratch_.path();
    return options;
  }
  std::unique_ptr<Engine> Open(uint32_t resident, uint32_t chunk = 0) const {
    return test::OpenEngine(path_, Options(resident, chunk));
  }
  bool MountSmall(const char* size) {
    const std::string option = fmt::format("size={}", size);
    mounted_ = mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, option.c_str()) == 0;
    return mounted_;
  }
  std::string path_;
  const test::TempFolder scratch_;
  bool mounted_ = false;
};

TEST_P(SpillGate, APromptInAnyChunksAndItsAnswerHaveTheBitsOfAResidentRun) {
  std::string resident;
  {
    const auto engine = Open(kContext);
    const auto session = Session::Create(engine.get());
    EXPECT_EQ(engine->plan().kv_spill_bytes, 0u);
    Go(session->get(), Text(850, engine->vocab_size(), 1), 140);
    resident = engine->stats().logits_hash;
    EXPECT_EQ(engine->stats().kv_spill_bytes_written, 0u);
  }
  for (uint32_t chunk : {0u, 64u, 100u}) {
    const auto engine = Open(kResident, chunk);
    EXPECT_EQ(engine->plan().kv_resident_tokens, kResident);
    const uint64_t in_memory = engine->plan().kv_bytes - engine->plan().kv_sliding_bytes;
    EXPECT_GT(engine->plan().kv_spill_bytes, 2 * in_memory);
    const auto session = Session::Create(engine.get());
    Go(session->get(), Text(850, engine->vocab_size(), 1), 140);
    const Stats stats = engine->stats();
    EXPECT_EQ(stats.logits_hash, resident) << "chunk " << chunk;
    EXPECT_GE(stats.kv_spilled_bytes, 11 * 64 * engine->plan().kv_bytes_per_token);
    EXPECT_GT(stats.kv_spill_bytes_per_token, 0);
  }
}

TEST_P(SpillGate, CutsAndRewritesOfPagesThatWereAway) {
  const auto full = Open(kContext), few = Open(kResident);
  const uint32_t vocab = full->vocab_size();
  const auto a = Session::Create(full.get()), b = Session::Create(few.get());
  const auto text = Text(900, vocab, 1);
  for (Session* session : {a->get(), b->get()}) {
    Go(session, text, 3);
    // Into the middle of a page that is away, several times, and on.
    for (uint32_t n : {700u, 500u, 330u}) {
      EXPECT_EQ(session->Rewind(n), n);
      Go(session, Text(250, vocab, n), 2);
    }
    const auto again = Text(900, vocab, 1);
    const uint32_t kept = session->Align(again);
    Go(session, {again.begin() + kept, again.end()}, 40);
  }
  EXPECT_EQ(Logits(**a), Logits(**b));
  Go(a->get(), {1, 2, 3}, 1);
  Go(b->get(), {1, 2, 3}, 1);
  EXPECT_EQ(Logits(**a), Logits(**b));
}

INSTANTIATE_TEST_SUITE_P(Models, SpillGate,
                         testing::Values("qwen3", "gemma3", "deepseek_v2", "qwen3_5_moe"),
                         [](const auto& param) { return std::string(param.param); });

class Spill : public SpillGate {};
INSTANTIATE_TEST_SUITE_P(Dense, Spill, testing::Values("qwen3"));

TEST_P(Spill, TwoTimelinesTakeTurns) {
  const auto full = Open(kContext), few = Open(kResident);
  const uint32_t vocab = full->vocab_size();
  const auto a1 = Session::Create(full.get()), a2 = Session::Create(full.get());
  const auto b1 = Session::Create(few.get()), b2 = Session::Create(few.get());
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const auto one = Text(110, vocab, turn), two = Text(90, vocab, turn + 9);
    Go(a1->get(), one, 2);
    Go(a2->get(), two, 2);
    Go(b1->get(), one, 2);
    Go(b2->get(), two, 2);
    EXPECT_EQ(Logits(**a1), Logits(**b1)) << turn;
    EXPECT_EQ(Logits(**a2), Logits(**b2)) << turn;
  }
  // Both share a beginning that is away, and write behind it.
  auto shared = std::vector<TokenId>((*a1)->tokens().begin(), (*a1)->tokens().begin() + 300);
  shared.resize(310, 7);
  for (Session* session : {a2->get(), b2->get()}) {
    const uint32_t kept = session->Align(shared);
    EXPECT_GE(kept, 256u);
    Go(session, {shared.begin() + kept, shared.end()}, 5);
  }
  EXPECT_EQ(Logits(**a2), Logits(**b2));
  Go(a1->get(), {4, 5}, 3);
  Go(b1->get(), {4, 5}, 3);
  EXPECT_EQ(Logits(**a1), Logits(**b1));
}

TEST_P(Spill, WhatIsAwayIsKeptForTheNextRun) {
  EngineOptions options = Options(kResident);
  options.state_dir = scratch_.path();
  std::vector<float> logits;
  const auto on = [&](uint32_t vocab) { return Text(800, vocab, 1); };
  {
    const auto engine = test::OpenEngine(path_, options);
    const auto session = Session::Create(engine.get());
    Go(session->get(), on(engine->vocab_size()), 0);
    logits = Logits(**session);
    (*session)->Keep(true);
  }
  const auto engine = test::OpenEngine(path_, options);
  const auto session = Session::Create(engine.get());
  const auto text = on(engine->vocab_size());
  EXPECT_EQ((*session)->Align(text), 768u);
  Go(session->get(), {text.begin() + 768, text.end()}, 0);
  EXPECT_EQ(Logits(**session), logits);
}

TEST_P(Spill, AFullDiskEndsOneRequest) {
  const auto full = Open(kContext);
  if (!MountSmall("160k")) GTEST_SKIP() << "SKIP: mounting a tmpfs needs root";
  const auto few = Open(kResident);
  ASSERT_NE(few, nullptr);
  const uint32_t vocab = full->vocab_size();
  const auto a = Session::Create(full.get()), b = Session::Create(few.get());
  const auto other = Session::Create(few.get());
  Go(a->get(), Text(150, vocab, 1), 2);
  Go(b->get(), Text(150, vocab, 1), 2);
  const Status status = (*b)->Append(Text(800, vocab, 2));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.ToString().find(scratch_.path()), std::string::npos) << status.ToString();
  EXPECT_NE(status.what().find("bytes"), std::string::npos) << status.ToString();
  EXPECT_EQ((*b)->length(), 152u);
  Go(a->get(), Text(40, vocab, 3), 5);
  Go(b->get(), Text(40, vocab, 3), 5);
  EXPECT_EQ(Logits(**a), Logits(**b));
  Go(other->get(), Text(50, vocab, 4), 1);
  Go(b->get(), {1, 2}, 0);
  Go(a->get(), {1, 2}, 0);
  EXPECT_EQ(Logits(**a), Logits(**b));
}

// The descriptor of the spill file: the one without a name in `dir`.
int SpillDescriptor(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind(dir, 0) == 0) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST_P(Spill, DamageIsAnErrorAndNeverAnAnswer) {
  const auto engine = Open(kResident);
  const uint32_t vocab = engine->vocab_size();
  const auto session = Session::Create(engine.get());
  const auto text = Text(850, vocab, 1);
  Go(session->get(), text, 0);
  const std::vector<float> good = Logits(**session);
  const int spill = SpillDescriptor(scratch_.path());
  ASSERT_GE(spill, 0);
  const int fd = open(fmt::format("/proc/self/fd/{}", spill).c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  const off_t end = lseek(fd, 0, SEEK_END);
  std::vector<uint8_t> block(4096);
  for (off_t at = 0; at < end; at += 4096) {
    ASSERT_EQ(pread(fd, block.data(), 4096, at), 4096);
    block[17] ^= 1;
    ASSERT_EQ(pwrite(fd, block.data(), 4096, at), 4096);
  }
  ASSERT_EQ(fsync(fd), 0);
  close(fd);
  const TokenId id = 3;
  const Status status = (*session)->Append({&id, 1});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kIo);
  for (const char* word : {"layer", "page", scratch_.path().c_str()})
    EXPECT_NE(status.where().find(word), std::string::npos) << status.ToString();
  EXPECT_EQ((*session)->length(), 850u);
  // From an empty timeline everything works.
  (*session)->Rewind(0);
  const auto fresh = Session::Create(engine.get());
  Go(fresh->get(), text, 0);
  EXPECT_EQ(Logits(**fresh), good);
}

// A context that no memory holds (M16): refused at once, with what it takes and what would fit.
TEST_P(Spill, AMillionTokensIn256MiBAreRefused) {
  EngineOptions options = Options(0);
  options.context = 1'000'000;
  options.budget_bytes = uint64_t{256} << 20;
  for (uint64_t resident : {0, 4096}) {
    options.kv_memory_tokens = resident;
    const Status status = Engine::Open(path_, options).status();
    ASSERT_EQ(status.code(), Code::kBudget) << status.ToString();
    EXPECT_NE(status.where().find("KV "), std::string::npos) << status.ToString();
    const size_t at = status.hint().find("--ctx ");
    ASSERT_NE(at, std::string::npos) << status.ToString();
    const auto fits = static_cast<uint32_t>(std::stoul(status.hint().substr(at + 6)));
    EngineOptions other = options;
    other.context = fits - fits / 100;  // this process grew a little meanwhile
    EXPECT_TRUE(Engine::PlanFor(path_, other).ok()) << fits;
    other.context = fits + fits / 100;
    EXPECT_FALSE(Engine::PlanFor(path_, other).ok()) << fits;
  }
}

}  // namespace
}  // namespace sluice
