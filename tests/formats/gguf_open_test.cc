#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "formats/gguf_split.h"
#include "formats/gguf_tokenizer_check.h"
#include "tests/formats/safetensors_builder.h"

namespace sluice {
namespace {

using testing::AddTokenizer;
using testing::GgufBuilder;
using testing::TempFolder;
using testing::TinyLlama;

TEST(SplitName, Forms) {
  const auto name = ParseSplitName("/a/model-00002-of-00005.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/a/model");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 5u);
  EXPECT_EQ(ShardPath(name->prefix, 3, 5), "/a/model-00003-of-00005.gguf");
  for (const char* bad : {"model.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
                          "m-0001-of-00002.gguf", "m-0000x-of-00002.gguf", "-00001-of-00002.gguf",
                          "m-00001-of-00002.ggu", "m_00001-of-00002.gguf", ""}) {
    EXPECT_FALSE(ParseSplitName(bad)) << bad;
  }
}

TEST(GgufOpen, MissingFileAndFolder) {
  TempFolder folder;
  EXPECT_EQ(OpenGguf(folder.path() + "/no.gguf").status().code(), Code::kIo);
  EXPECT_EQ(OpenGguf(folder.path()).status().code(), Code::kIo);
}

TEST(GgufOpen, HeaderLargerThanTheFirstRead) {
  TempFolder folder;
  GgufBuilder b = TinyLlama();
  b.Texts("x.big", std::vector<std::string>(40000, std::string(60, 'x')));
  b.Text("x.last", "here");
  Result<GgufFileSet> set = OpenGguf(folder.Write("big.gguf", b.Build()));
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->header.metadata.String("x.last"), "here");
  EXPECT_EQ(set->catalog.tensors.size(), 20u);
  EXPECT_LT(set->header_bytes.size(), set->header.data_offset + 300 * 1024);
  // Views survive a move of the set.
  GgufFileSet moved = std::move(*set);
  EXPECT_EQ(moved.header.metadata.String("x.last"), "here");
}

// Three shards: keys only, then the tensors in two halves.
struct Shards {
  GgufBuilder part[3];
};
Shards Split() {
  Shards s;
  s.part[0] = TinyLlama();
  s.part[0].tensors.clear();
  const GgufBuilder whole = TinyLlama();
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    s.part[i < 8 ? 1 : 2].tensors.push_back(whole.tensors[i]);
  }
  for (uint16_t i = 0; i < 3; ++i) {
    s.part[i].Put("split.no", 2, testing::Raw(i)).Put("split.count", 2, testing::Raw<uint16_t>(3));
    s.part[i].Put("split.tensors.count", 5, testing::Raw<int32_t>(20));
  }
  return s;
}
std::string Name(int i) { return ShardPath("m", static_cast<uint32_t>(i) + 1, 3); }
void WriteAll(const TempFolder& folder, const Shards& s) {
  for (int i = 0; i < 3; ++i) folder.Write(Name(i), s.part[i].Build());
}

TEST(GgufOpen, SplitSetFromAnyShard) {
  TempFolder folder;
  WriteAll(folder, Split());
  for (int i = 0; i < 3; ++i) {
    Result<GgufFileSet> set = OpenGguf(folder.path() + "/" + Name(i));
    ASSERT_TRUE(set.ok()) << i << ": " << set.status().ToString();
    EXPECT_EQ(set->catalog.files.size(), 3u);
    EXPECT_EQ(set->catalog.tensors.size(), 20u);
    EXPECT_EQ(set->header.metadata.String("general.architecture"), "llama");
    EXPECT_EQ(set->catalog.Find("token_embd.weight")->extent.file, 1u);
    EXPECT_EQ(set->catalog.Find("blk.1.ffn_down.weight")->extent.file, 2u);
  }
}

void ExpectRefused(const TempFolder& folder, int open, const std::vector<std::string>& words) {
  const Result<GgufFileSet> set = OpenGguf(folder.path() + "/" + Name(open));
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.status().code(), Code::kBadModel);
  for (const std::string& word : words) {
    EXPECT_NE(set.status().ToString().find(word), std::string::npos) << set.status().ToString();
  }
}

TEST(GgufOpen, MissingShardIsNamed) {
  for (int missing = 0; missing < 3; ++missing) {
    TempFolder folder;
    WriteAll(folder, Split());
    std::filesystem::remove(folder.path() + "/" + Name(missing));
    ExpectRefused(folder, missing == 0 ? 2 : 0, {Name(missing), "shard"});
  }
}

TEST(GgufOpen, MisfitShards) {
  const auto with = [](const std::function<void(Shards&)>& edit, int open,
                       const std::vector<std::string>& words) {
    TempFolder folder;
    Shards s = Split();
    edit(s);
    WriteAll(folder, s);
    ExpectRefused(folder, open, words);
  };
  with([](Shards& s) { s.part[2].Put("split.no", 2, testing::Raw<uint16_t>(1)); }, 0, {Name(2)});
  with([](Shards& s) { s.part[1].Put("split.count", 2, testing::Raw<uint16_t>(4)); }, 0, {Name(1)});
  with([](Shards& s) { s.part[1].Drop("split.count"); }, 0, {Name(1)});
  with([](Shards& s) { s.part[0].Drop("split.no"); }, 0, {"split.no"});
  with([](Shards& s) { s.part[0].U32("split.count", 1u << 30); }, 0, {"split.count"});
  with([](Shards& s) { s.part[2] = s.part[1]; }, 0, {Name(2)});
  with([](Shards& s) { s.part[2].Text("general.architecture", "gemma3"); }, 0, {"gemma3"});
  with([](Shards& s) { s.part[2].DropTensor("blk.1.ffn_up.weight"); }, 0, {"split.tensors.count"});
  with(
      [](Shards& s) {
        s.part[2].Add("token_embd.weight", {32, 24});
      },
      0, {"duplicate", "token_embd.weight"});
  with([](Shards& s) { s.part[2].version = 99; }, 0, {Name(2), "version"});
}

TEST(GgufOpen, RenamedShardIsRefused) {
  TempFolder folder;
  const Result<GgufFileSet> set = OpenGguf(folder.Write("model.gguf", Split().part[0].Build()));
  ASSERT_FALSE(set.ok());
  EXPECT_NE(set.status().ToString().find("00001-of-00003"), std::string::npos);
}

TEST(GgufOpen, SplitCountOneIsAPlainFile) {
  TempFolder folder;
  GgufBuilder b = TinyLlama();
  b.U32("split.count", 1).U32("split.no", 0);
  EXPECT_TRUE(OpenGguf(folder.Write("model.gguf", b.Build())).ok());
}

Status CheckKeys(const std::function<void(GgufBuilder&)>& edit, uint64_t rows = 24) {
  GgufBuilder b = TinyLlama();
  AddTokenizer(&b, 24);
  edit(b);
  const std::string file = b.Build();
  Result<GgufParse> parse = ParseGguf(testing::Bytes(file), file.size(), "x.gguf");
  EXPECT_TRUE(parse.ok());
  return CheckTokenizerKeys(parse->header.metadata, rows, "x.gguf");
}

TEST(TokenizerCheck, WholeAndAbsentSectionsPass) {
  EXPECT_TRUE(CheckKeys([](auto&) {}).ok());
  EXPECT_TRUE(CheckKeys([](auto& b) {
                std::erase_if(b.keys,
                              [](const auto& k) { return k.name.starts_with("tokenizer"); });
              }).ok());
  EXPECT_TRUE(CheckKeys([](auto& b) {
                b.Text("tokenizer.ggml.model", "none").Drop("tokenizer.ggml.tokens");
              }).ok());
  EXPECT_TRUE(CheckKeys([](auto& b) { b.U32("tokenizer.ggml.eos_token_id", UINT32_MAX); }).ok());
}

TEST(TokenizerCheck, BadSectionsNameTheKey) {
  const auto expect = [](const Status& status, const char* word) {
    ASSERT_FALSE(status.ok()) << word;
    EXPECT_EQ(status.code(), Code::kBadModel);
    EXPECT_NE(status.ToString().find(word), std::string::npos) << status.ToString();
  };
  const std::string p = "tokenizer.ggml.";
  expect(CheckKeys([&](auto& b) { b.Drop(p + "tokens"); }), "tokenizer.ggml.tokens");
  expect(CheckKeys([&](auto& b) { b.Drop(p + "model"); }), "tokenizer.ggml.model");
  expect(CheckKeys([&](auto& b) { b.Drop(p + "merges"); }), "tokenizer.ggml.merges");
  expect(CheckKeys([&](auto& b) { b.U32(p + "merges", 1); }), "tokenizer.ggml.merges");
  expect(CheckKeys([&](auto& b) { b.U32(p + "tokens", 1); }), "tokenizer.ggml.tokens");
  expect(CheckKeys([](auto&) {}, 23), "token_embd.weight");
  expect(CheckKeys([](auto&) {}, 25), "token_embd.weight");
  expect(CheckKeys([&](auto& b) {
           b.template List<int32_t>(p + "token_type", 5, {1, 1});
         }),
         "tokenizer.ggml.token_type");
  expect(CheckKeys([&](auto& b) {
           b.template List<float>(p + "scores", 6, {1, 1});
         }),
         "tokenizer.ggml.scores");
  expect(CheckKeys([&](auto& b) { b.Text(p + "model", "llama").Drop(p + "merges"); }),
         "tokenizer.ggml.scores");
}

}  // namespace
}  // namespace sluice
