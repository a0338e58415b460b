// A mixture whose file is a split set: the parts of one expert lie in different files, and the
// answer is that of the whole file.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "formats/gguf.h"
#include "formats/gguf_split.h"
#include "tests/formats/gguf_builder.h"
#include "tests/gates/engine_gate.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

constexpr uint32_t kShards = 3;

std::string RawValue(const GgufValue& value) {
  const std::string bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  if (value.type == GgufValueType::kString) return testing::RawString(bytes);
  if (value.type != GgufValueType::kArray) return bytes;
  return testing::Raw(static_cast<uint32_t>(value.element)) + testing::Raw(value.count) + bytes;
}

// Tensor i goes to shard i % kShards; all metadata to the first. Returns the first shard's path.
std::string SplitFile(const std::string& path, const std::string& prefix) {
  const Result<GgufFileSet> set = OpenGguf(path);
  EXPECT_TRUE(set.ok()) << set.status().ToString();
  const std::string whole = testing::Slurp(path);
  std::array<testing::GgufBuilder, kShards> shard;
  std::array<std::string, kShards> data;
  for (const auto& [key, value] : set->header.metadata.entries())
    shard[0].Put(std::string(key), static_cast<uint32_t>(value.type), RawValue(value));
  const std::vector<TensorInfo>& tensors = set->catalog.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    std::vector<uint64_t> dims(t.dims.begin(), t.dims.begin() + t.n_dims);
    shard[i % kShards].Add(t.name, dims, t.type);
    std::string& bytes = data[i % kShards];
    bytes += whole.substr(t.extent.offset, t.extent.bytes);
    bytes.resize(AlignUp(bytes.size(), 32));
  }
  for (uint16_t i = 0; i < kShards; ++i) {
    shard[i].Put("split.no", 2, testing::Raw(i));
    shard[i].Put("split.count", 2, testing::Raw<uint16_t>(kShards));
    shard[i].Put("split.tensors.count", 5, testing::Raw(static_cast<int32_t>(tensors.size())));
    std::string file = shard[i].Build();
    EXPECT_GE(file.size(), data[i].size());
    file.replace(file.size() - data[i].size(), data[i].size(), data[i]);
    std::ofstream(ShardPath(prefix, i + 1u, kShards), std::ios::binary) << file;
  }
  return ShardPath(prefix, 1, kShards);
}

struct Answer {
  std::string hash;
  Plan plan;
  Stats stats;
};

Answer Ask(const std::string& path, int64_t slots, int lookahead) {
  Answer answer;
  EngineOptions o = test::GateOptions(128);
  o.expert_slots = slots;
  o.lookahead = lookahead;
  const std::unique_ptr<Engine> engine = test::OpenEngine(path, o);
  if (engine == nullptr) return answer;
  const auto session = Session::Create(engine.get());
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 30; ++i) ids.push_back((i * 37 + 5) % 640);
  EXPECT_TRUE((*session)->Append(ids).ok());
  for (TokenId id = 0; id < 12; ++id) EXPECT_TRUE((*session)->Append({&id, 1}).ok());
  answer.stats = engine->stats();
  answer.plan = engine->plan();
  answer.hash = answer.stats.logits_hash;
  return answer;
}

TEST(SplitModel, ExpertsStreamFromSeveralFiles) {
  const testing::TempFolder folder;
  for (const char* shape : {"qwen3-30b-a3b", "gpt-oss-20b"}) {
    const std::string whole = folder / "whole.gguf", prefix = folder / shape;
    ASSERT_TRUE(Forge(testing::Tiny(shape), whole).ok());
    const std::string first = SplitFile(whole, prefix);
    const Result<GgufFileSet> set = OpenGguf(first);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    std::set<uint32_t> files;
    for (const TensorInfo& t : set->catalog.tensors) {
      if (t.name.starts_with("blk.1.ffn_") && t.name.ends_with("_exps.weight"))
        files.insert(t.extent.file);
    }
    ASSERT_GT(files.size(), 1u) << "an expert's parts should lie in different files";
    const Answer want = Ask(whole, -1, 0);
    for (const auto& [slots, lookahead] : {std::pair(-1, 0), std::pair(9, 2), std::pair(0, 1)}) {
      const Answer got = Ask(first, slots, lookahead);
      EXPECT_EQ(got.hash, want.hash) << shape << ", " << slots << " slots";
      if (slots >= 0) {
        EXPECT_LT(got.stats.hit_rate, 1);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
