#include "runtime/tokenizer_load.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "formats/gguf.h"
#include "tests/temp_folder.h"
#include "tests/test_data.h"

namespace sluice {
namespace {

Result<std::unique_ptr<Tokenizer>> FromFile(const std::string& path) {
  SLUICE_ASSIGN(const GgufFileSet set, OpenGguf(path));
  return TokenizerFromGguf(set.header.metadata, path);
}

TEST(TokenizerLoad, DevCasesFromGguf) {
  std::ifstream file(test::SharedPath("cases/dev/tokenize.json"));
  if (!file) GTEST_SKIP() << "SKIPPED: no shared cases at " << test::SharedPath("");
  auto t = FromFile(test::SharedPath("cases/dev/gguf/ok-llama-f32.gguf"));
  ASSERT_TRUE(t.ok()) << t.status().ToString();
  const nlohmann::json cases = nlohmann::json::parse(file);
  for (const nlohmann::json& c : cases["cases"]) {
    if (!c.contains("text")) continue;
    const std::string text = c["text"];
    EXPECT_EQ((*t)->Encode(text, false, false), c["ids_plain"].get<std::vector<TokenId>>())
        << c["id"];
    EXPECT_EQ((*t)->Encode(text, true, false), c["ids_special"].get<std::vector<TokenId>>())
        << c["id"];
  }
  EXPECT_FALSE((*t)->special().add_bos);
  EXPECT_EQ((*t)->special().eos, 282);
}

TEST(TokenizerLoad, EosOutOfRangeIsAWarningNamingTheKey) {
  const std::string path = test::SharedPath("cases/dev/gguf/ok-eos-out-of-range.gguf");
  if (!std::ifstream(path)) GTEST_SKIP() << "SKIPPED: no " << path;
  std::string warning;
  SetLogSink([&](LogLevel, std::string_view text) { warning += text; });
  auto t = FromFile(path);
  SetLogSink(nullptr);
  ASSERT_TRUE(t.ok()) << t.status().ToString();
  EXPECT_NE(warning.find("eos_token_id"), std::string::npos);
  EXPECT_EQ((*t)->special().eos, -1);
}

TEST(TokenizerLoad, AModelWithoutATokenizerSaysSo) {
  const GgufMetadata none;
  auto t = TokenizerFromGguf(none, "m.gguf");
  ASSERT_FALSE(t.ok());
  EXPECT_NE(t.status().ToString().find("tokenizer.ggml.model"), std::string::npos);
  auto folder = TokenizerFromFolder("/nonexistent");
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.status().ToString().find("tokenizer.json"), std::string::npos);
}

TEST(TokenizerLoad, FolderReadsTheConfigs) {
  const test::TempFolder folder;
  folder.Write(
      "tokenizer.json",
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"added_tokens":)"
      R"([{"id":3,"content":"<s>","special":true},{"id":4,"content":"<end>","special":true}]})");
  folder.Write("tokenizer_config.json",
               R"({"bos_token":{"content":"<s>"},"eos_token":"<end>","add_bos_token":true,)"
               R"("tokenizer_class":"LlamaTokenizerFast"})");
  folder.Write("generation_config.json", R"({"eos_token_id":[4,3,99999]})");
  auto t = TokenizerFromFolder(folder.path());
  ASSERT_TRUE(t.ok()) << t.status().ToString();
  const SpecialTokens& special = (*t)->special();
  EXPECT_EQ(special.bos, 3);
  EXPECT_EQ(special.eos, 4);
  EXPECT_EQ(special.eog, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ((*t)->Encode("ab", true, true), (std::vector<TokenId>{3, 2}));
  EXPECT_EQ((*t)->Encode("<s>ab", true, true), (std::vector<TokenId>{3, 2}));
}

}  // namespace
}  // namespace sluice
