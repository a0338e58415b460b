// Logits and greedy continuations of the tiny models against the references, in every form they
// come in.
#include <algorithm>

#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/golden/golden_data.h"

namespace sluice {
namespace {

using golden::Golden;

struct Form {
  std::string arch;  // folder under golden/
  std::string file;  // "" for the Hugging Face folder itself
};

std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (const char* arch :
       {"llama", "llama_tied", "qwen2", "qwen3", "gemma3", "gemma3_qpas", "qwen3_moe", "olmoe",
        "granitemoe", "gpt_oss", "gpt_oss_l7", "qwen3_next", "qwen3_5_moe", "deepseek_v2"}) {
    forms.push_back({arch, ""});
    forms.push_back({arch, "model.gguf"});
  }
  return forms;
}

class LogitsTest : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    dir_ = golden::SharedDir() / "golden" / GetParam().arch;
    if (!std::filesystem::exists(dir_ / "golden.json"))
      GTEST_SKIP() << "SKIP: no golden data at " << dir_;
    path_ = GetParam().file.empty() ? dir_ : dir_ / GetParam().file;
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "this model has no GGUF form";
  }

  std::unique_ptr<Engine> Open(uint32_t chunk, ActType act = ActType::kF32) {
    EngineOptions options;
    options.context = 256;
    options.threads = 2;
    options.need_text = false;
    options.act = act;
    options.chunk = chunk;
    Result<std::unique_ptr<Engine>> engine = Engine::Open(path_.string(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static std::vector<float> Rows(Engine* engine, const std::vector<int32_t>& ids, size_t skip) {
    Result<std::unique_ptr<Session>> session = Session::Create(engine);
    std::vector<float> rows;
    const Status status =
        (*session)->Append(ids, [&](uint32_t index, std::span<const float> logits) {
          if (index >= skip) rows.insert(rows.end(), logits.begin(), logits.end());
        });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return rows;
  }

  std::filesystem::path dir_, path_;
};

// The references were computed in float32 by transformers; both sides round, hence the house's
// 2e-4.
constexpr double kToleranceRelative = 2e-4;

TEST_P(LogitsTest, PromptMatchesReference) {
  const Golden g(dir_);
  for (uint32_t chunk : {0u, 7u}) {
    const std::unique_ptr<Engine> engine = Open(chunk);
    ASSERT_NE(engine, nullptr);
    EXPECT_LE(golden::RelativeError(Rows(engine.get(), g.Ids("tokens"), 0), g.Get<float>("logits")),
              kToleranceRelative)
        << "chunk " << chunk;
  }
}

TEST_P(LogitsTest, LongPromptMatchesReference) {
  const Golden g(dir_);
  const std::unique_ptr<Engine> engine = Open(0);
  ASSERT_NE(engine, nullptr);
  const std::vector<int32_t> ids = g.Ids("long.tokens");
  const std::vector<float> want = g.Get<float>("long.logits_last");
  const size_t rows = want.size() / engine->vocab_size();
  EXPECT_LE(golden::RelativeError(Rows(engine.get(), ids, ids.size() - rows), want),
            kToleranceRelative);
}

TEST_P(LogitsTest, GreedyContinuationIsIdentical) {
  const Golden g(dir_);
  for (ActType act : {ActType::kF32, ActType::kQ8}) {
    // MXFP4 experts with int8 activations are another arithmetic: 0.2 to 0.4 on logits of size 8.
    if (act == ActType::kQ8 && GetParam().arch.starts_with("gpt_oss")) continue;
    const std::unique_ptr<Engine> engine = Open(0, act);
    ASSERT_NE(engine, nullptr);
    Result<std::unique_ptr<Session>> session = Session::Create(engine.get());
    ASSERT_TRUE((*session)->Append(g.Ids("tokens")).ok());
    std::vector<int32_t> greedy;
    const std::vector<int32_t> want = g.Ids("greedy");
    while (greedy.size() < want.size()) {
      const std::span<const float> logits = (*session)->logits();
      greedy.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      ASSERT_TRUE((*session)->Append(std::span<const int32_t>(&greedy.back(), 1)).ok());
    }
    EXPECT_EQ(greedy, want);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LogitsTest, testing::ValuesIn(AllForms()), [](const auto& param) {
  return param.param.arch + (param.param.file.empty() ? "_folder" : "_gguf");
});

size_t ArgMax(const std::vector<float>& rows, size_t row, size_t vocab) {
  const float* begin = rows.data() + row * vocab;
  return static_cast<size_t>(std::max_element(begin, begin + vocab) - begin);
}

// Quantised files: float activations are held to the reference, int8 ones to the field's yardstick.
class QuantLogitsTest : public testing::TestWithParam<const char*> {};

TEST_P(QuantLogitsTest, MatchesDequantisedReference) {
  const std::filesystem::path dir = golden::SharedDir() / "golden" / "gguf_quant" / GetParam();
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "SKIP: no golden data at " << dir;
  const Golden g(dir);
  for (ActType act : {ActType::kF32, ActType::kQ8}) {
    EngineOptions options;
    options.context = 256;
    options.need_text = false;
    options.act = act;
    Result<std::unique_ptr<Engine>> engine = Engine::Open((dir / "model.gguf").string(), options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    Result<std::unique_ptr<Session>> session = Session::Create(engine->get());
    std::vector<float> rows;
    const Status status =
        (*session)->Append(g.Ids("tokens"), [&](uint32_t, std::span<const float> logits) {
          rows.insert(rows.end(), logits.begin(), logits.end());
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::vector<float> want = g.Get<float>("logits");
    ASSERT_EQ(rows.size(), want.size());
    const size_t vocab = (*engine)->vocab_size();
    if (act == ActType::kF32) {
      EXPECT_LE(golden::RelativeError(rows, want), kToleranceRelative);
      continue;
    }
    double mean = 0;
    size_t same = 0;
    for (size_t i = 0; i < rows.size(); ++i)
      mean += std::abs(rows[i] - want[i]) / static_cast<double>(rows.size());
    for (size_t r = 0; r < rows.size() / vocab; ++r) {
      same += ArgMax(rows, r, vocab) == ArgMax(want, r, vocab);
    }
    RecordProperty("mean_abs_error", std::to_string(mean));
    EXPECT_LE(mean, 0.09) << "llama.cpp: "
                          << g.meta().value("llama_cpp_yardstick", nlohmann::json()).dump();
    EXPECT_GE(static_cast<double>(same), 0.85 * static_cast<double>(rows.size() / vocab));
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantLogitsTest,
                         testing::Values("llama_mix", "qwen3_moe_q4km", "qwen3_5_moe_q4km"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace sluice
