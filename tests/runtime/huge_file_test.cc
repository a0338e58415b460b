// Case I04: a tensor of more than 2^31 bytes at an offset beyond 2^32. The file is a hole except
// for what one token needs, and must give the bits of a small file that holds the same weights.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

constexpr uint32_t kHidden = 4096, kUsed = 2;
constexpr TokenId kToken = 7;

// Writes into an outline file by tensor name.
class Filler {
 public:
  explicit Filler(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
    const Result<std::string> listing = InspectModel(path, /*tensors=*/true, /*json=*/true);
    EXPECT_TRUE(listing.ok()) << listing.status().ToString();
    const nlohmann::json json = nlohmann::json::parse(*listing);
    for (const auto& t : json.at("tensors")) {
      tensors_[t["name"]] = {t["offset"], t["bytes"]};
    }
  }
  ~Filler() { close(fd_); }

  struct Place {
    uint64_t offset = 0, bytes = 0;
  };
  Place At(const std::string& name) const { return tensors_.at(name); }
  template <typename T>
  void Write(const std::string& name, uint64_t skip, const std::vector<T>& data) const {
    const size_t bytes = data.size() * sizeof(T);
    const auto at = static_cast<off_t>(At(name).offset + skip);
    EXPECT_EQ(pwrite(fd_, data.data(), bytes, at), static_cast<ssize_t>(bytes)) << name;
  }

 private:
  int fd_;
  std::map<std::string, Place> tensors_;
};

// Blocks of random bits whose half-precision scales, `halves` at `at`, are small.
std::vector<uint8_t> Blocks(uint64_t bytes, uint32_t block, uint32_t at, uint32_t halves,
                            uint16_t scale, uint64_t seed) {
  std::vector<uint8_t> out(bytes);
  uint64_t state = seed * 2 + 1;
  for (uint8_t& b : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<uint8_t>(state >> 56);
  }
  for (uint64_t i = 0; i < bytes; i += block) {
    for (uint32_t h = 0; h < halves; ++h) std::memcpy(&out[i + at + 2 * h], &scale, 2);
  }
  return out;
}

// One layer whose router sends kToken to the last two experts, the only ones that are not zero.
void MakeModel(const std::string& path, uint32_t experts, bool with_experts) {
  ForgeOptions o = testing::Tiny("qwen3-30b-a3b");
  o.overrides.layers = 1;
  o.overrides.experts = experts;
  o.overrides.used = kUsed;
  o.overrides.hidden = o.overrides.expert_ff = kHidden;
  o.free_bytes_min = 0;
  const Status status = ForgeOutline(o, path);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const Filler file(path);
  for (const char* norm :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "blk.0.attn_q_norm.weight",
        "blk.0.attn_k_norm.weight", "output_norm.weight"}) {
    file.Write(norm, 0, std::vector<float>(file.At(norm).bytes / 4, 1.0f));
  }
  const uint64_t row = kHidden / 32 * 34;  // Q8_0
  const std::vector<uint8_t> embedding = Blocks(row, 34, 0, 1, 0x2000, 1);
  file.Write("token_embd.weight", kToken * row, embedding);
  std::vector<float> router(kHidden);
  for (uint32_t i = 0; i < kHidden; ++i) {
    router[i] =
        1e-4f * static_cast<float>(static_cast<int8_t>(embedding[i / 32 * 34 + 2 + i % 32]));
  }
  const std::vector<uint8_t> head = Blocks(file.At("output.weight").bytes, 210, 208, 1, 0x0400, 2);
  file.Write("output.weight", 0, head);
  for (uint32_t k = 0; k < kUsed; ++k) {
    const uint64_t expert = experts - kUsed + k;
    file.Write("blk.0.ffn_gate_inp.weight", expert * kHidden * 4, router);
    for (const char* part : {"gate", "up", "down"}) {
      const std::string name = std::string("blk.0.ffn_") + part + "_exps.weight";
      const uint64_t bytes = file.At(name).bytes / experts;
      if (with_experts)
        file.Write(name, expert * bytes, Blocks(bytes, 144, 0, 2, 0x0800, 10 * k + *part));
    }
  }
}

std::vector<float> LogitsOf(const std::string& path) {
  EngineOptions options;
  options.need_text = false;
  options.threads = 2;
  options.context = 64;
  options.budget_bytes = uint64_t{384} << 20;
  options.expert_slots = kUsed;
  const Result<std::unique_ptr<Engine>> engine = Engine::Open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return {};
  const Result<std::unique_ptr<Session>> session = Session::Create(engine->get());
  const Status status = (*session)->Append(std::span<const TokenId>(&kToken, 1));
  EXPECT_TRUE(status.ok()) << status.ToString();
  const std::span<const float> logits = (*session)->logits();
  return {logits.begin(), logits.end()};
}

TEST(HugeFile, ATensorBeyondTheReachOf32Bits) {
  const testing::TempFolder folder;
  const std::string huge = folder / "huge.gguf", small = folder / "small.gguf",
                    none = folder / "none.gguf";
  MakeModel(huge, 256, true);
  MakeModel(small, 4, true);
  MakeModel(none, 4, false);
  if (HasFatalFailure()) return;
  const Filler::Place down = Filler(huge).At("blk.0.ffn_down_exps.weight");
  ASSERT_GT(down.offset, uint64_t{1} << 32);
  ASSERT_GT(down.bytes, uint64_t{1} << 31);
  const std::vector<float> want = LogitsOf(small), got = LogitsOf(huge);
  ASSERT_FALSE(want.empty());
  EXPECT_TRUE(got == want);
  EXPECT_FALSE(LogitsOf(none) == want) << "the experts do not show in the logits";
}

}  // namespace
}  // namespace sluice
