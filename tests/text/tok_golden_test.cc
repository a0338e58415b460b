#include <gtest/gtest.h>

#include <ctime>

#include "tests/text/tok_support.h"

namespace sluice {
namespace {

using testing::Ids;
using testing::LoadTokenizerJson;
using testing::ReadJson;
using testing::SharedPath;
using testing::TokenizerFolder;

void CheckCase(const Tokenizer& t, const nlohmann::json& c) {
  const std::string text = c["text"];
  const Ids ids = c["ids"];
  EXPECT_EQ(t.Encode(text, true, false), ids) << text;
  EXPECT_EQ(t.Decode(ids, true), c["decoded"].get<std::string>());
  EXPECT_EQ(t.Decode(ids, false), c["decoded_skip_special"].get<std::string>());
  if (c.contains("ids_with_bos")) {
    // The reference prepends BOS even to a text that begins with it; here it is never there twice.
    Ids want = c["ids_with_bos"];
    if (want.size() > 1 && want[0] == want[1] && want[0] == t.special().bos)
      want.erase(want.begin());
    EXPECT_EQ(t.Encode(text, true, true), want) << text;
  } else {
    EXPECT_EQ(t.Encode(text, true, true), ids) << text;
  }
  StreamDecoder stream(&t, true);
  std::string streamed;
  for (TokenId id : ids) {
    streamed += stream.Push(id);
    EXPECT_TRUE(text::IsValidUtf8(streamed));
  }
  EXPECT_EQ(streamed + stream.Flush(), c["decoded"].get<std::string>());
}

class TokGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokGolden, EqualsTheReference) {
  const std::string name = GetParam();
  const nlohmann::json golden = ReadJson(SharedPath("golden/tokenizers/" + name + ".json"));
  if (golden.is_null()) GTEST_SKIP() << "SKIPPED: no shared goldens at " << SharedPath("");
  const std::string path = TokenizerFolder(name) + "/tokenizer.json";
  if (!std::ifstream(path))
    GTEST_SKIP() << "SKIPPED: " << path << " is missing; tools/setup --tests fetches it";
  const std::clock_t begin = std::clock();
  Result<std::unique_ptr<Tokenizer>> loaded = LoadTokenizerJson(path);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const Tokenizer& t = **loaded;
  EXPECT_EQ(t.vocab_size(), golden["vocab_size"].get<uint32_t>());
  EXPECT_LE(t.memory_bytes(), 25u * 1000 * 1000);
  RecordProperty("load_cpu_ms", static_cast<int>(seconds * 1000));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (name == "qwen3") {
    EXPECT_LT(seconds, 0.5);
  }
#endif
  for (const nlohmann::json& c : golden["cases"]) CheckCase(t, c);
}

INSTANTIATE_TEST_SUITE_P(All, TokGolden, ::testing::Values("qwen3", "llama3", "gemma3", "gptoss"));

TEST(TokGolden, DevCasesFromTokenizerJson) {
  const nlohmann::json cases = ReadJson(SharedPath("cases/dev/tokenize.json"));
  if (cases.is_null()) GTEST_SKIP() << "SKIPPED: no shared cases at " << SharedPath("");
  auto t = LoadTokenizerJson(SharedPath("cases/dev/safetensors/st-ok/tokenizer.json"));
  ASSERT_TRUE(t.ok()) << t.status().ToString();
  for (const nlohmann::json& c : cases["cases"]) {
    if (c.contains("text_repeat")) {
      std::string text;
      for (int i = 0; i < c["text_repeat"][1]; ++i) text += c["text_repeat"][0].get<std::string>();
      const Ids ids = (*t)->Encode(text + c["text_tail"].get<std::string>(), false, false);
      EXPECT_EQ(ids.size(), c["n_ids"].get<size_t>());
      EXPECT_EQ(Ids(ids.begin(), ids.begin() + 4), c["head"].get<Ids>());
      continue;
    }
    const std::string text = c["text"];
    EXPECT_EQ((*t)->Encode(text, false, false), c["ids_plain"].get<Ids>()) << c["id"];
    EXPECT_EQ((*t)->Encode(text, true, false), c["ids_special"].get<Ids>()) << c["id"];
  }
}

TEST(TokStructures, EqualTheReference) {
  std::ifstream file(SLUICE_SOURCE_DIR "/tests/fixtures/text/tok_structures.jsonl");
  std::string line;
  int tokenizers = 0;
  while (std::getline(file, line)) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    auto t = ParseTokenizerJson(entry["tokenizer"].dump(), entry["name"]);
    ASSERT_TRUE(t.ok()) << t.status().ToString();
    for (const nlohmann::json& c : entry["cases"]) {
      const Ids ids = (*t)->Encode(c["t"].get<std::string>(), true, false);
      EXPECT_EQ(ids, c["i"].get<Ids>()) << entry["name"] << " " << c["t"];
      EXPECT_EQ((*t)->Decode(ids), c["d"].get<std::string>()) << entry["name"] << " " << c["t"];
    }
    ++tokenizers;
  }
  EXPECT_EQ(tokenizers, 7);
}

// What cannot be done exactly is refused by name, never approximated.
TEST(TokJson, RefusesByName) {
  const std::string bpe = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
  struct Bad {
    std::string json, names;
  };
  for (const Bad& bad : std::vector<Bad>{
           {R"({"model":{"type":"Unigram","vocab":[["a",0.0]]}})", "Unigram"},
           {R"({"model":{"type":"WordPiece","vocab":{"a":0}}})", "WordPiece"},
           {R"({"model":{"type":"BPE","vocab":{"a":0}}})", "merges"},
           {R"({"model":{"type":"BPE","vocab":{},"merges":[]}})", "vocab"},
           {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a x"]}})", "merge 0"},
           {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}})", "merge"},
           {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", "no id: a"},
           {R"({"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}})", "4000000000"},
           {R"({"normalizer":{"type":"Precompiled"},)" + bpe + "}", "Precompiled"},
           {R"({"pre_tokenizer":{"type":"BertPreTokenizer"},)" + bpe + "}", "BertPreTokenizer"},
           {R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<=x)y"}},)" + bpe + "}",
            "(?<"},
           {R"({"decoder":{"type":"WordPiece"},)" + bpe + "}", "WordPiece"},
           {R"({"post_processor":{"type":"BertProcessing"},)" + bpe + "}", "BertProcessing"},
           {R"({"added_tokens":[{"content":"x"}],)" + bpe + "}", "added token"},
           {R"({"added_tokens":[{"id":0,"content":"x"}],)" + bpe + "}", "added token 'x'"},
           {R"({"model":{"type":"BPE",)", "byte"},
           {"[]", "tokenizer.json"},
           {"", "byte"}}) {
    auto t = ParseTokenizerJson(bad.json, "t.json");
    ASSERT_FALSE(t.ok()) << bad.json;
    EXPECT_EQ(t.status().code(), Code::kBadModel);
    EXPECT_NE(t.status().ToString().find(bad.names), std::string::npos)
        << bad.json << " -> " << t.status().ToString();
  }
}

TEST(TokJson, KeysInAnyOrder) {
  auto t = ParseTokenizerJson(
      R"({"model":{"merges":[["a","b"]],"vocab":{"ab":2,"b":1,"a":0},"type":"BPE"},)"
      R"("added_tokens":[{"id":5,"content":"<x>","special":true}]})",
      "t.json");
  ASSERT_TRUE(t.ok()) << t.status().ToString();
  EXPECT_EQ((*t)->Encode("ab<x>a", true, false), (Ids{2, 5, 0}));
  EXPECT_EQ((*t)->vocab_size(), 6u);  // 3 and 4 are holes
  EXPECT_EQ((*t)->Decode({3, 4, 2}), "ab");
}

TEST(TokJson, DeepNestingIsRefused) {
  std::string deep = R"({"normalizer":)";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_FALSE(ParseTokenizerJson(deep, "t.json").ok());
}

TEST(TokJson, ReadErrorIsAnIoError) {
  auto t = ParseTokenizerJson([](char*, size_t) -> int64_t { return -1; }, "t.json");
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::kIo);
}

}  // namespace
}  // namespace sluice
