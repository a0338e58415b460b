// The verbs that run a model: the shared bug cases and goldens through the real program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace sluice::test {
namespace {

using nlohmann::ordered_json;

template <typename T>
std::vector<T> Tensor(const std::string& folder, const ordered_json& golden, const char* name) {
  const auto& about = golden["tensors"][name];
  const std::string all = ReadFile(folder + "/golden.bin");
  std::vector<T> out(about["nbytes"].get<size_t>() / sizeof(T));
  std::memcpy(out.data(), all.data() + about["offset"].get<size_t>(), out.size() * sizeof(T));
  return out;
}

template <typename T>
std::string List(const std::vector<T>& ids) {
  std::string text;
  for (T id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

struct Npy {
  std::string shape;
  std::vector<float> values;
};

Npy ReadNpy(const std::string& path) {
  const std::string raw = ReadFile(path);
  Npy npy;
  if (raw.size() < 10 || raw.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0) return npy;
  const size_t length =
      static_cast<unsigned char>(raw[8]) + 256 * static_cast<unsigned char>(raw[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  const std::string header = raw.substr(10, length);
  EXPECT_NE(header.find("'descr': '<f4'"), std::string::npos) << header;
  EXPECT_NE(header.find("'fortran_order': False"), std::string::npos) << header;
  EXPECT_EQ(header.back(), '\n');
  const size_t open = header.find('('), close = header.find(')');
  npy.shape = header.substr(open, close - open + 1);
  npy.values.resize((raw.size() - 10 - length) / 4);
  std::memcpy(npy.values.data(), raw.data() + 10 + length, npy.values.size() * 4);
  return npy;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  double error = 0, scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::fabs(double(got[i]) - want[i]));
    scale = std::max(scale, std::fabs(double(want[i])));
  }
  return error / scale;
}

TEST(Logits, GoldenModels) {
  int done = 0;
  TempFolder dir;
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3", "gemma3"}) {
    const std::string folder = Shared(std::string("golden/") + name);
    if (folder.empty()) continue;
    const auto golden = ordered_json::parse(ReadFile(folder + "/golden.json"));
    const auto want = Tensor<float>(folder, golden, "logits");
    const std::string ids = List(Tensor<int32_t>(folder, golden, "tokens"));
    for (const std::string& model : {folder + "/model.gguf", folder}) {
      const ProcessResult result =
          Sluice({"logits", model, "--ids", ids, "--out", dir / "x.npy", "--act", "f32"});
      ASSERT_EQ(result.code, 0) << model << result.err;
      EXPECT_EQ(result.out, "");
      const Npy npy = ReadNpy(dir / "x.npy");
      EXPECT_EQ(npy.shape, "(24, " + std::to_string(want.size() / 24) + ")");
      EXPECT_LE(RelativeError(npy.values, want), 2e-4) << model;
      ++done;
    }
    WriteFile(dir / "ids", ids + "\n");
    ASSERT_EQ(Sluice({"logits", folder + "/model.gguf", "--ids-file", dir / "ids", "-o",
                      dir / "y.npy", "--act", "f32", "--chunk", "5", "--threads", "1"})
                  .code,
              0);
    ASSERT_EQ(Sluice({"logits", folder + "/model.gguf", "--ids-file", dir / "ids", "-o",
                      dir / "z.npy", "--act", "f32"})
                  .code,
              0);
    EXPECT_TRUE(ReadFile(dir / "y.npy") == ReadFile(dir / "z.npy")) << "chunk changed a bit";
  }
  if (done == 0) GTEST_SKIP() << "SKIP: no goldens";
}

TEST(Run, GoldenGreedyContinuation) {
  int done = 0;
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3", "gemma3"}) {
    const std::string folder = Shared(std::string("golden/") + name);
    if (folder.empty()) continue;
    const auto golden = ordered_json::parse(ReadFile(folder + "/golden.json"));
    const ProcessResult result = Sluice(
        {"run", folder + "/model.gguf", "--ids", List(Tensor<int32_t>(folder, golden, "tokens")),
         "-n", "16", "--greedy", "--json", "--act", "f32", "--ignore-eos"});
    ASSERT_EQ(result.code, 0) << name << result.err;
    const auto json = ordered_json::parse(result.out);
    EXPECT_EQ(json["ids"].get<std::vector<int>>(), Tensor<int32_t>(folder, golden, "greedy"))
        << name;
    EXPECT_EQ(json["finish_reason"], "length");
    ++done;
  }
  if (done == 0) GTEST_SKIP() << "SKIP: no goldens";
}

const char* const kStatsKeys[] = {"load_s",
                                  "ttft_s",
                                  "prefill_tok_s",
                                  "decode_tok_s",
                                  "prompt_tokens",
                                  "decode_tokens",
                                  "hit_rate",
                                  "bytes_per_token",
                                  "stall_ms_per_token",
                                  "compute_ms_per_token",
                                  "peak_rss_bytes",
                                  "budget_bytes",
                                  "bound_tok_s",
                                  "bound_fraction",
                                  "logits_hash",
                                  "isa",
                                  "io"};

TEST(DevCases, BehaveAsTheManifestSays) {
  const std::string manifest = Shared("cases/dev/manifest.json");
  if (manifest.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  for (const auto& c : ordered_json::parse(ReadFile(manifest))) {
    const std::string id = c["id"];
    const std::string model = Shared("cases/dev/" + c["open"].get<std::string>());
    const ProcessResult result =
        Sluice({"run", model.empty() ? "missing" : model, "-p", "hello the world 123", "--raw",
                "--greedy", "-n", "8", "--json"});
    if (id == "ok-qwen3moe-f32" && result.code != 0) {  // until mixtures of experts load
      EXPECT_EQ(result.code, 3) << result.err;
      EXPECT_NE(result.err.find("qwen3moe"), std::string::npos) << result.err;
    } else if (c["expected"] == "loads" && id != "ok-nan-weights") {
      ASSERT_EQ(result.code, 0) << id << ": " << result.err;
      const auto json = ordered_json::parse(result.out);
      if (!c.contains("golden")) continue;
      EXPECT_EQ(json["prompt_ids"], c["golden"]["prompt_ids"]) << id;
      EXPECT_EQ(json["ids"], c["golden"]["greedy_ids"]) << id;
      for (const char* key : kStatsKeys) EXPECT_TRUE(json["stats"].contains(key)) << key;
    } else if (id == "ok-nan-weights") {
      EXPECT_EQ(result.code, 7) << result.err;
      EXPECT_NE(result.err.find("layer"), std::string::npos) << result.err;
    } else {
      EXPECT_EQ(result.code, 3) << id << ": " << result.err;
      std::string lower = result.err;
      std::transform(lower.begin(), lower.end(), lower.begin(), ::tolower);
      bool hinted = c["hint_any"].empty();
      for (std::string hint : c["hint_any"]) {
        std::transform(hint.begin(), hint.end(), hint.begin(), ::tolower);
        hinted = hinted || lower.find(hint) != std::string::npos;
      }
      EXPECT_TRUE(hinted) << id << ": " << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
  }
}

class SmallModel : public testing::Test {
 protected:
  void SetUp() override {
    model_ = Shared("cases/dev/gguf/ok-llama-f32.gguf");
    if (model_.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  }
  ProcessResult Go(std::vector<std::string> more, const ProcessOptions& options = {}) {
    std::vector<std::string> args = {"run", model_, "--raw", "--greedy"};
    args.insert(args.end(), more.begin(), more.end());
    return Sluice(args, options);
  }
  std::string model_;
};

TEST_F(SmallModel, SamePromptFromEverySource) {
  TempFolder dir;
  WriteFile(dir / "p", "hello the world 123\n");
  const ProcessResult a = Go({"-p", "hello the world 123", "-n", "4", "--json"});
  ASSERT_EQ(a.code, 0) << a.err;
  const auto want = ordered_json::parse(a.out)["ids"];
  ProcessOptions input;
  input.input = "hello the world 123\n";
  for (const ProcessResult& r :
       {Go({"-f", dir / "p", "-n", "4", "--json"}), Go({"-f", "-", "-n", "4", "--json"}, input),
        Go({"-n", "4", "--json"}, input),
        Sluice({"run", "-m", model_, "-n", "4", "--ids", "263,258,268,32,49,50,51", "--json",
                "--greedy", "-t", "1", "-c", "64", "-b", "3", "-s", "5"})}) {
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(ordered_json::parse(r.out)["ids"], want);
  }
}

TEST_F(SmallModel, StdoutHoldsTheAnswerOnly) {
  const ProcessResult json = Go({"-p", "hello", "-n", "12", "--json"});
  const ProcessResult text = Go({"-p", "hello", "-n", "12"});
  ASSERT_EQ(text.code, 0) << text.err;
  std::string want = ordered_json::parse(json.out)["text"];
  if (!want.empty() && want.back() != '\n') want += "\n";
  EXPECT_EQ(text.out, want);
  EXPECT_EQ(text.err, "");
  const ProcessResult stats = Go({"-p", "hello", "-n", "12", "--stats"});
  EXPECT_EQ(stats.out, want);
  for (const char* word : {"load", "first token", "prefill", "decode", "stall", "compute",
                           "peak memory", "budget", "read per token", "total"}) {
    EXPECT_NE(stats.err.find(word), std::string::npos) << word << "\n" << stats.err;
  }
}

TEST_F(SmallModel, ZeroTokensAndEmptyPrompt) {
  const ProcessResult zero = Go({"-p", "hello", "-n", "0", "--json"});
  ASSERT_EQ(zero.code, 0) << zero.err;
  EXPECT_EQ(ordered_json::parse(zero.out)["finish_reason"], "length");
  EXPECT_EQ(ordered_json::parse(zero.out)["text"], "");
  const ProcessResult empty = Go({"-p", "", "-n", "4", "--json"});
  EXPECT_TRUE(empty.code == 0 || (empty.code == 2 && empty.err.find("BOS") != std::string::npos))
      << empty.code << empty.err;
}

TEST_F(SmallModel, AwkwardPrompts) {
  for (const char* prompt : {"-x", "--help", "[a, b]", "a=b", "\xC3(", "@file", "-1"}) {
    EXPECT_EQ(Go({"-p", prompt, "-n", "1"}).code, 0) << prompt;
  }
}

TEST_F(SmallModel, SeedsRepeat) {
  const auto text = [&](const char* seed) {
    const ProcessResult r = Sluice({"run", model_, "--raw", "-p", "hello", "-n", "24",
                                    "--ignore-eos", "--temp", "1.5", "--seed", seed, "--json"});
    EXPECT_EQ(r.code, 0) << r.err;
    return ordered_json::parse(r.out)["ids"];
  };
  EXPECT_EQ(text("7"), text("7"));
  EXPECT_NE(text("7"), text("8"));
}

TEST_F(SmallModel, ContextEndIsAnnouncedAndExitsWithSix) {
  const ProcessResult full =
      Go({"-p", "hello the world 123", "--ctx", "16", "--ignore-eos", "--json"});
  EXPECT_EQ(full.code, 6) << full.err;
  EXPECT_NE(full.err.find("context"), std::string::npos);
  const auto json = ordered_json::parse(full.out);
  EXPECT_EQ(json["finish_reason"], "context");
  EXPECT_EQ(json["ids"].size() + json["prompt_ids"].size(), 16u);
  const ProcessResult over = Go({"-p", "hello the world 123", "--ctx", "4"});
  EXPECT_EQ(over.code, 6) << over.err;
  EXPECT_NE(over.err.find("the prompt has "), std::string::npos) << over.err;
  EXPECT_NE(over.err.find(" and the context holds 4;"), std::string::npos) << over.err;
  EXPECT_EQ(over.out, "");
  EXPECT_EQ(
      Sluice({"logits", model_, "--ids", "1,2,3,4,5", "--ctx", "4", "-o", "/tmp/never.npy"}).code,
      6);
}

TEST_F(SmallModel, IdsOutsideTheVocabulary) {
  for (const auto& args : {std::vector<std::string>{"run", model_, "--ids", "1,99999"},
                           {"logits", model_, "--ids", "99999", "-o", "/tmp/never.npy"},
                           {"run", model_, "-p", "x", "--raw", "--logit-bias", "99999=1"}}) {
    const ProcessResult result = Sluice(args);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find("99999"), std::string::npos) << result.err;
  }
  EXPECT_FALSE(Exists("/tmp/never.npy"));
}

TEST_F(SmallModel, StopStringsCut) {
  const auto base = ordered_json::parse(Go({"-p", "hello", "-n", "20", "--json"}).out);
  const std::string text = base["text"];
  if (text.size() < 4) GTEST_SKIP() << "SKIP: the answer is too short to cut";
  // A stop in the middle of the answer; it may occur earlier, never later.
  const std::string stop = text.substr(text.size() / 2, 2);
  if ((static_cast<unsigned char>(stop[0]) & 0x80) ||
      (static_cast<unsigned char>(stop[1]) & 0x80)) {
    GTEST_SKIP() << "SKIP: no plain characters there";
  }
  const auto cut =
      ordered_json::parse(Go({"-p", "hello", "-n", "20", "--json", "--stop", stop}).out);
  EXPECT_EQ(cut["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(cut["finish_reason"], "stop");
}

TEST_F(SmallModel, PlanInspectBench) {
  const ProcessResult plan = Sluice({"plan", model_, "--json", "--ctx", "64"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const auto json = ordered_json::parse(plan.out);
  uint64_t sum = 0;
  for (const auto& line : json["lines"]) sum += line["bytes"].get<uint64_t>();
  EXPECT_EQ(sum, json["total_bytes"].get<uint64_t>());
  EXPECT_EQ(json["context"], 64);
  const ProcessResult table = Sluice({"plan", model_});
  EXPECT_NE(table.out.find("total"), std::string::npos);
  EXPECT_NE(table.out.find("floor"), std::string::npos);
  EXPECT_TRUE(ordered_json::accept(Sluice({"inspect", model_, "--json", "--tensors"}).out));
  EXPECT_NE(Sluice({"inspect", model_, "--tensors"}).out.find("token_embd.weight"),
            std::string::npos);
  const ProcessResult bench = Sluice({"bench", model_, "--ctx", "64", "--prompt-tokens", "8",
                                      "--decode", "4", "--repeat", "2", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const auto measured = ordered_json::parse(bench.out);
  for (const char* key : kStatsKeys) EXPECT_TRUE(measured.contains(key)) << key;
  EXPECT_EQ(measured["decode_tokens"], 4);
  EXPECT_EQ(measured["runs"][0]["logits_hash"], measured["runs"][1]["logits_hash"]);
}

// The prompt's products beside what the processor can multiply; floats have no such figure.
TEST_F(SmallModel, BenchSaysWhatPartOfTheInt8PeakAPromptReached) {
  const std::string model = Shared("cases/dev/gguf/ok-q8_0.gguf");
  const auto bench = [&](const char* act, bool json) {
    std::vector<std::string> words = {"bench", model, "--ctx",    "256", "--prompt-tokens", "64",
                                      "--act", act,   "--decode", "1",   "--repeat",        "1"};
    if (json) words.push_back("--json");
    const ProcessResult run = Sluice(words);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  const auto one = ordered_json::parse(bench("q8", true));
  EXPECT_GT(one["int8_peak_gops"].get<double>(), 0);
  EXPECT_GT(one["prefill_int8_gops"].get<double>(), 0);
  EXPECT_LE(one["prefill_int8_gops"].get<double>(), 1.5 * one["int8_peak_gops"].get<double>());
  EXPECT_NEAR(one["prefill_int8_fraction"].get<double>(),
              one["prefill_int8_gops"].get<double>() / one["int8_peak_gops"].get<double>(), 1e-9);
  EXPECT_EQ(one["act_planes"], 1);
  // The plan's counts over the prompt's time.
  const auto plan = ordered_json::parse(Sluice({"plan", model, "--act", "q8", "--json"}).out);
  const double operations =
      64 * plan["int8_ops_per_token"].get<double>() + plan["int8_ops_per_logits"].get<double>();
  EXPECT_NEAR(one["prefill_int8_gops"].get<double>() * one["prefill_s"].get<double>() * 1e9,
              operations, 1e-6 * operations);
  EXPECT_EQ(ordered_json::parse(bench("q16", true))["act_planes"], 2);
  const auto floats = ordered_json::parse(bench("f32", true));
  EXPECT_EQ(floats["act_planes"], 0);
  EXPECT_EQ(floats["prefill_int8_fraction"], 0);
  EXPECT_NE(bench("q8", false).find("of int8"), std::string::npos);
  EXPECT_EQ(bench("f32", false).find("of int8"), std::string::npos);
}

TEST_F(SmallModel, BudgetBelowTheFloor) {
  const ProcessResult result = Go({"-p", "x", "--budget", "1M"});
  EXPECT_EQ(result.code, 4) << result.err;
  EXPECT_NE(result.err.find("; "), std::string::npos) << result.err;
}

TEST_F(SmallModel, LogitsFailuresLeaveNoFile) {
  TempFolder dir;
  WriteFile(dir / "x.npy", "older");
  const std::string nan = Shared("cases/dev/gguf/ok-nan-weights.gguf");
  const ProcessResult result = Sluice({"logits", nan, "--ids", "1,2", "-o", dir / "x.npy"});
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_EQ(ReadFile(dir / "x.npy"), "older");
}

TEST_F(SmallModel, BrokenTemplateStopsChatOnly) {
  const std::string model = Shared("cases/dev/gguf/ok-bad-chat-template.gguf");
  EXPECT_EQ(Sluice({"run", model, "--raw", "-p", "hello", "-n", "2"}).code, 0);
  const ProcessResult chat = Sluice({"run", model, "-p", "hello", "-n", "2"});
  EXPECT_EQ(chat.code, 7) << chat.err;
  EXPECT_NE(chat.err.find("chat template"), std::string::npos) << chat.err;
}

}  // namespace
}  // namespace sluice::test
