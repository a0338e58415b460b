// sluice cache: what is listed, removed, verified and counted, for people and for scripts.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/runtime/prefix_support.h"

namespace sluice::test {
namespace {

using nlohmann::json;

class CacheTest : public testing::Test {
 protected:
  void Fill() {
    PrefixStore::Options options;
    options.dir = state_ / "prefix";
    options.bytes_max = 64 << 20;
    options.identity = TestIdentity();
    auto store = PrefixStore::Open(options);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ASSERT_TRUE(PutPageOf(store->get(), 1).ok());
    ASSERT_TRUE(PutPageOf(store->get(), 2).ok());
    ASSERT_TRUE(PutCheckpointOf(store->get(), 3, 7).ok());
  }
  ProcessResult Cache(std::vector<std::string> words) {
    words.insert(words.begin(), "cache");
    words.insert(words.end(), {"--state-dir", state_.path()});
    return Sluice(words);
  }
  std::string Path(const std::string& name) {
    return state_ / ("prefix/" + name.substr(0, 2) + "/" + name);
  }
  TempFolder state_;
  const std::string page_ = KeyOf(1).Hex() + ".page", state_name_ = KeyOf(3, 7).Hex() + ".state";
};

TEST_F(CacheTest, AnEmptyOneIsNoError) {
  for (const char* verb : {"ls", "stat", "verify"}) {
    const ProcessResult result = Cache({verb});
    EXPECT_EQ(result.code, 0) << verb << result.err;
  }
  EXPECT_EQ(json::parse(Cache({"ls", "--json"}).out)["entries"].size(), 0u);
  EXPECT_EQ(Cache({"rm", "--all"}).out, "0 entries removed\n");
  EXPECT_FALSE(Exists(state_ / "prefix"));
}

TEST_F(CacheTest, ListsAndCounts) {
  Fill();
  const std::string table = Cache({"ls"}).out;
  for (const std::string& text :
       {page_, state_name_, std::string("0123abcd tiny"), std::string("f16"), std::string("135")}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << "\n" << table;
  }
  const json entries = json::parse(Cache({"ls", "--json"}).out)["entries"];
  ASSERT_EQ(entries.size(), 3u);
  uint64_t bytes = 0;
  for (const json& entry : entries) {
    bytes += entry["bytes"].get<uint64_t>();
    EXPECT_EQ(entry["bytes"], std::filesystem::file_size(Path(entry["name"])));
    EXPECT_EQ(entry["kind"], entry["name"] == state_name_ ? "state" : "page");
    EXPECT_EQ(entry["tokens"], entry["name"] == state_name_ ? 135 : 64);
  }
  const json stat = json::parse(Cache({"stat", "--json"}).out);
  EXPECT_EQ(stat["entries"], 3);
  EXPECT_EQ(stat["pages"], 2);
  EXPECT_EQ(stat["states"], 1);
  EXPECT_EQ(stat["bytes"], bytes);
  EXPECT_GT(stat["limit_bytes"].get<uint64_t>(), 0u);
}

// A person who looks at the list knows which model an entry is of.
TEST_F(CacheTest, AModelGoesByItsOwnName) {
  const std::string model = Shared("cases/dev/gguf/ok-llama-f32.gguf");
  if (model.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  const ProcessResult run = Sluice({"run", model, "-p", std::string(90, 'w'), "-n", "2", "--greedy",
                                    "--ctx", "512", "--state-dir", state_.path()});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(Cache({"ls"}).out.find("\ntiny-llama "), std::string::npos) << Cache({"ls"}).out;
}

TEST_F(CacheTest, RemovesByNameAndAll) {
  Fill();
  EXPECT_EQ(Cache({"rm", page_}).out, "1 entry removed\n");
  EXPECT_FALSE(Exists(Path(page_)));
  EXPECT_TRUE(Exists(Path(state_name_)));
  const ProcessResult again = Cache({"rm", page_});
  EXPECT_EQ(again.code, 2) << again.err;
  EXPECT_EQ(Cache({"rm", state_name_, "../../etc/passwd"}).code, 2);
  EXPECT_TRUE(Exists(Path(state_name_)));
  EXPECT_EQ(Cache({"rm", "--all"}).out, "2 entries removed\n");
  EXPECT_FALSE(Exists(Path(state_name_)));
}

TEST_F(CacheTest, VerifyDeletesWhatIsDamagedAndSaysSo) {
  Fill();
  const ProcessResult good = Cache({"verify"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("3 entries"), std::string::npos) << good.out;
  std::string bytes = ReadFile(Path(page_));
  bytes[bytes.size() / 2 + 2048] ^= 4;
  WriteFile(Path(page_), bytes);
  const ProcessResult bad = Cache({"verify", "--json"});
  EXPECT_EQ(bad.code, 5) << bad.err;
  EXPECT_NE(bad.err.find("sluice: error: 1 of 3 entries"), std::string::npos) << bad.err;
  const json verdict = json::parse(bad.out);
  ASSERT_EQ(verdict["damaged"].size(), 1u);
  EXPECT_EQ(verdict["damaged"][0]["name"], page_);
  EXPECT_FALSE(Exists(Path(page_)));
  EXPECT_EQ(Cache({"verify"}).code, 0);
}

// What cannot be looked into is an error of every verb: it must not pass for an empty store.
TEST_F(CacheTest, AFolderThatCannotBeReadIsNotAnEmptyOne) {
  WriteFile(state_ / "prefix", "a file");
  const auto all_fail = [&] {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"ls"}, {"stat"}, {"verify"}, {"rm", "--all"}, {"rm", page_}}) {
      const ProcessResult result = Cache(words);
      EXPECT_EQ(result.code, 5) << words[0] << result.err << result.out;
      EXPECT_NE(result.err.find("cannot read the folder"), std::string::npos) << result.err;
      EXPECT_NE(result.err.find(state_ / "prefix"), std::string::npos) << result.err;
      EXPECT_EQ(result.out, "") << words[0];
    }
  };
  all_fail();
  std::filesystem::remove(state_ / "prefix");
  Fill();
  // A sub-folder that leads nowhere; permissions would not stop root.
  const std::string shard = state_ / ("prefix/" + page_.substr(0, 2));
  std::filesystem::remove_all(shard);
  std::filesystem::create_symlink(shard, shard);
  all_fail();
}

TEST_F(CacheTest, UsageErrors) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "VERB is missing"},
      {{"lss"}, "'lss'"},
      {{"rm"}, "no name"},
      {{"rm", "--all", "x"}, "--all"},
      {{"ls", "x"}, "belong to rm"},
      {{"stat", "--all"}, "belong to rm"},
      {{"rm", "x.page"}, "'x.page'"},
  };
  for (const auto& [words, mention] : cases) {
    const ProcessResult result = Cache(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(mention), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace sluice::test
