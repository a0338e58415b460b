// Positions by option equal a model file that says the same, bit for bit; docs/cli.md.
#include <algorithm>

#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/golden/golden_data.h"
#include "tests/temp_folder.h"

namespace sluice::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  std::string hash;
  std::vector<float> logits;  // of the last token
  std::vector<std::string> notices;
};

// Every row of 200 tokens: far beyond the 64 that the scalings below take as trained.
Outcome RunModel(const fs::path& model, const RopeOptions& rope) {
  EngineOptions options;
  options.need_text = false;
  options.threads = 1;
  options.context = 256;
  options.rope = rope;
  Outcome out;
  const auto engine = Engine::Open(model.string(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return out;
  const auto session = Session::Create(engine->get());
  std::vector<TokenId> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>((i * 7919 + 13) % 320);
  const Status status = (*session)->Append(ids, [](uint32_t, std::span<const float>) {});
  EXPECT_TRUE(status.ok()) << status.ToString();
  out.hash = (*engine)->stats().logits_hash;
  out.logits.assign((*session)->logits().begin(), (*session)->logits().end());
  out.notices = (*engine)->stats().notices;
  return out;
}

Status OpenError(const fs::path& model, const RopeOptions& rope) {
  EngineOptions options;
  options.need_text = false;
  options.rope = rope;
  return Engine::Open(model.string(), options).status();
}

class RopeOption : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = SharedDir() / "golden";
    if (!fs::exists(golden_ / "qwen3")) GTEST_SKIP() << "SKIP: no golden models at " << golden_;
  }

  // The golden folder with another config.
  fs::path Folder(const std::string& model, const std::function<void(json*)>& change) {
    const fs::path out = folder_ / (model + std::to_string(count_++));
    fs::create_directory(out);
    std::ifstream in(golden_ / model / "config.json");
    json config = json::parse(in);
    change(&config);
    std::ofstream(out / "config.json") << config;
    fs::create_symlink(fs::absolute(golden_ / model / "model.safetensors"),
                       out / "model.safetensors");
    return out;
  }
  fs::path golden_;
  const test::TempFolder folder_;
  int count_ = 0;
};

TEST_F(RopeOption, EqualsTheConfigThatSaysSo) {
  const fs::path plain = golden_ / "qwen3";
  const auto scaled = [&](const json& parameters) {
    return Folder("qwen3", [&](json* config) { (*config)["rope_parameters"] = parameters; });
  };
  const std::string yarn = RunModel(scaled({{"rope_type", "yarn"},
                                            {"rope_theta", 700000.0},
                                            {"factor", 4.0},
                                            {"original_max_position_embeddings", 64}}),
                                    {})
                               .hash;
  const Outcome option = RunModel(plain, {RopeMode::kYarn, 4, 0, 64});
  EXPECT_EQ(option.hash, yarn);
  const Outcome none = RunModel(plain, {});
  EXPECT_NE(none.hash, yarn);
  EXPECT_TRUE(none.notices.empty());
  ASSERT_EQ(option.notices.size(), 1u);
  EXPECT_NE(option.notices[0].find("scaling yarn x4 from 64"), std::string::npos)
      << option.notices[0];
  const std::string linear =
      RunModel(scaled({{"rope_type", "linear"}, {"rope_theta", 700000.0}, {"factor", 2.5}}), {})
          .hash;
  EXPECT_EQ(RunModel(plain, {RopeMode::kLinear, 2.5, 0, 0}).hash, linear);
  EXPECT_EQ(RunModel(plain, {RopeMode::kModel, 2.5, 0, 0}).hash, linear);
  const std::string base =
      RunModel(scaled({{"rope_type", "default"}, {"rope_theta", 1000.0}}), {}).hash;
  EXPECT_EQ(RunModel(plain, {RopeMode::kModel, 0, 1000, 0}).hash, base);
  EXPECT_NE(base, none.hash);
}

// What the file says is replaced: llama3's scaling, and yarn with another factor, which also
// changes deepseek's attention scale.
TEST_F(RopeOption, ReplacesWhatTheFileSays) {
  const fs::path unscaled = Folder("llama", [](json* config) { config->erase("rope_scaling"); });
  const std::string want = RunModel(unscaled, {}).hash;
  EXPECT_EQ(RunModel(golden_ / "llama", {RopeMode::kNone, 0, 0, 0}).hash, want);
  EXPECT_NE(RunModel(golden_ / "llama", {}).hash, want);
  const fs::path other = Folder("deepseek_v2", [](json* config) {
    json& s = config->contains("rope_parameters") ? (*config)["rope_parameters"]
                                                  : (*config)["rope_scaling"];
    ASSERT_EQ(s.value("rope_type", s.value("type", "")), "yarn");
    s["factor"] = s["factor"].get<double>() * 2;
  });
  std::ifstream in(other / "config.json");
  const json config = json::parse(in);
  const json& s =
      config.contains("rope_parameters") ? config["rope_parameters"] : config["rope_scaling"];
  EXPECT_EQ(
      RunModel(golden_ / "deepseek_v2", {RopeMode::kModel, s["factor"].get<double>(), 0, 0}).hash,
      RunModel(other, {}).hash);
}

// Writes keys in front of a GGUF file's own, as many bytes as keep its data aligned.
void InsertKeys(const fs::path& from, const fs::path& to,
                const std::vector<std::pair<std::string, std::string>>& keys) {
  std::ifstream in(from, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), {});
  const auto number = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto text = [&](const std::string& s) { return number(uint64_t{s.size()}) + s; };
  std::string more;
  for (const auto& [key, value] : keys) more += text(key) + value;
  const std::string pad_key = text("test.pad") + number(uint32_t{8});
  const size_t used = more.size() + pad_key.size() + 8;
  more += pad_key + text(std::string((32 - used % 32) % 32, 'x'));
  uint64_t count;
  std::memcpy(&count, file.data() + 16, 8);
  count += keys.size() + 1;
  std::memcpy(file.data() + 16, &count, 8);
  file.insert(24, more);
  std::ofstream(to, std::ios::binary) << file;
}

TEST_F(RopeOption, EqualsTheGgufThatSaysSo) {
  const auto text = [](const std::string& s) {
    const uint32_t type = 8;
    const uint64_t size = s.size();
    return std::string(reinterpret_cast<const char*>(&type), 4) +
           std::string(reinterpret_cast<const char*>(&size), 8) + s;
  };
  const auto number = [](uint32_t type, auto value) {
    return std::string(reinterpret_cast<const char*>(&type), 4) +
           std::string(reinterpret_cast<const char*>(&value), 4);
  };
  const fs::path plain = golden_ / "qwen3" / "model.gguf", scaled = folder_ / "yarn.gguf";
  InsertKeys(plain, scaled,
             {{"qwen3.rope.scaling.type", text("yarn")},
              {"qwen3.rope.scaling.factor", number(6, 4.0f)},
              {"qwen3.rope.scaling.original_context_length", number(4, uint32_t{64})}});
  const std::string want = RunModel(scaled, {}).hash;
  EXPECT_EQ(RunModel(plain, {RopeMode::kYarn, 4, 0, 64}).hash, want);
  EXPECT_NE(RunModel(plain, {}).hash, want);
  EXPECT_EQ(RunModel(scaled, {RopeMode::kNone, 0, 0, 0}).hash, RunModel(plain, {}).hash);
  // The divisors of llama3's scaling in a GGUF file go, too. Its heads are permuted, so that sums
  // have another order than the folder's.
  const fs::path unscaled = Folder("llama", [](json* config) { config->erase("rope_scaling"); });
  const fs::path llama = golden_ / "llama" / "model.gguf";
  const std::vector<float> reference = RunModel(unscaled, {}).logits;
  EXPECT_LT(RelativeError(RunModel(llama, {RopeMode::kNone, 0, 0, 0}).logits, reference), 2e-4);
  EXPECT_GT(RelativeError(RunModel(llama, {}).logits, reference), 1e-3);
}

TEST_F(RopeOption, NonsenseIsRefused) {
  const fs::path plain = golden_ / "qwen3";
  const RopeOptions bad[] = {{RopeMode::kNone, 4, 0, 0},   {RopeMode::kYarn, 0, 0, 0},
                             {RopeMode::kLinear, 0, 0, 0}, {RopeMode::kLinear, 4, 0, 64},
                             {RopeMode::kModel, 0, 0, 64}, {RopeMode::kModel, -1, 0, 0},
                             {RopeMode::kModel, 0, 0.5, 0}};
  for (const RopeOptions& rope : bad) {
    for (const fs::path& model : {plain, plain / "model.gguf"}) {
      const Status status = OpenError(model, rope);
      EXPECT_EQ(status.code(), Code::kUsage) << (&rope - bad) << status.ToString();
      EXPECT_NE(status.ToString().find("--"), std::string::npos) << status.ToString();
    }
  }
}

}  // namespace
}  // namespace sluice::golden
