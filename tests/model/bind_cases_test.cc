// The shared case files: opened, bound and checked as the runtime does, each behaving as its
// manifest says.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "formats/gguf.h"
#include "formats/gguf_tokenizer_check.h"
#include "formats/hf_folder.h"
#include "model/model_map.h"
#include "tests/formats/shared_files.h"

namespace sluice {
namespace {

using nlohmann::json;

Status LoadGguf(const std::string& path) {
  SLUICE_ASSIGN(GgufFileSet set, OpenGguf(path));
  SLUICE_ASSIGN(const ModelMap map, BindGguf(std::move(set), path));
  return CheckTokenizerKeys(set.header.metadata, map.embedding.rows, path);
}
Status LoadFolder(const std::string& path) {
  SLUICE_ASSIGN(HfFolder folder, OpenHfFolder(path, true));
  return BindHf(std::move(folder)).status();
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return tolower(c); });
  return text;
}

TEST(SharedCases, BehaveAsTheManifestSays) {
  const std::string folder = testing::SharedPath("cases/dev/");
  const std::string text = testing::ReadAll(folder + "manifest.json");
  if (text.empty()) GTEST_SKIP() << "SHARED FILES ABSENT: " << folder;
  int seen = 0;
  for (const json& c : json::parse(text)) {
    const std::string kind = c["kind"];
    if (kind != "gguf" && kind != "safetensors") continue;
    const std::string path = folder + c["open"].get<std::string>(), id = c["id"];
    const Status status = kind == "gguf" ? LoadGguf(path) : LoadFolder(path);
    ++seen;
    if (c["expected"] == "loads") {
      EXPECT_TRUE(status.ok()) << id << ": " << status.ToString();
      continue;
    }
    ASSERT_FALSE(status.ok()) << id;
    EXPECT_EQ(status.code(), Code::kBadModel) << id;
    bool hinted = c["hint_any"].empty();
    for (const json& hint : c["hint_any"]) {
      // The text without the path, whose name often holds the word as well.
      hinted |= Lower(status.what() + " " + status.hint()).find(Lower(hint)) != std::string::npos;
    }
    EXPECT_TRUE(hinted) << id << ": " << status.ToString() << " wants one of " << c["hint_any"];
  }
  EXPECT_GE(seen, 50);
}

TEST(SharedCases, EosOutOfRangeWarnsByName) {
  const std::string path = testing::SharedPath("cases/dev/gguf/ok-eos-out-of-range.gguf");
  if (testing::ReadAll(path).empty()) GTEST_SKIP() << "SHARED FILES ABSENT: " << path;
  std::string log;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) log += line;
  });
  EXPECT_TRUE(LoadGguf(path).ok());
  SetLogSink(nullptr);
  EXPECT_NE(log.find("eos_token_id"), std::string::npos) << log;
}

TEST(SharedCases, SecondShardFindsTheFirst) {
  const std::string path = testing::SharedPath("cases/dev/gguf/ok-split2-00002-of-00002.gguf");
  if (testing::ReadAll(path).empty()) GTEST_SKIP() << "SHARED FILES ABSENT: " << path;
  EXPECT_TRUE(LoadGguf(path).ok());
}

}  // namespace
}  // namespace sluice
