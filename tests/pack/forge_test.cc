// What forge writes, refuses, and leaves behind when it fails.
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <unordered_set>

#include "formats/gguf.h"
#include "pack/forge_fill.h"
#include "pack/forge_text.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using namespace testing;

TEST(ForgeShapeTest, ParameterCountsAreThePublishedOnes) {
  const struct {
    const char* shape;
    uint64_t parameters;
  } cases[] = {{"qwen3-30b-a3b", 30'532'122'624},
               {"qwen3.6-35b-a3b", 34'660'610'688},
               {"gpt-oss-20b", 20'914'757'184},
               {"gpt-oss-120b", 116'829'156'672},
               {"olmoe-7b", 6'919'161'856}};
  for (const auto& c : cases) {
    const Result<ForgeShape> shape = FindForgeShape(c.shape, {});
    ASSERT_TRUE(shape.ok()) << shape.status().ToString();
    const auto tensors = ForgeTensors(*shape, *FindForgeRecipe(shape->recipe));
    ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
    uint64_t parameters = 0;
    for (const ForgeTensor& t : *tensors) {
      uint64_t n = 1;
      for (uint64_t dim : t.dims) n *= dim;
      parameters += n;
    }
    EXPECT_EQ(parameters, c.parameters) << c.shape;
  }
}

TEST(ForgeShapeTest, ExpertBytesAreTheRealOnes) {
  for (const auto& [name, bytes] : {std::pair{"qwen3-30b-a3b", 2'654'208u},
                                    {"qwen3.6-35b-a3b", 1'769'472u},
                                    {"gpt-oss-120b", 13'219'200u}}) {
    const ForgeShape shape = *FindForgeShape(name, {});
    const std::vector<ForgeTensor> tensors = *ForgeTensors(shape, *FindForgeRecipe(shape.recipe));
    uint64_t expert = 0;
    for (const ForgeTensor& t : tensors) {
      if (t.layer == 0 && t.name.ends_with("_exps.weight")) expert += t.bytes / shape.experts;
    }
    EXPECT_EQ(expert, bytes) << name;
  }
}

TEST(ForgeTest, TheFileParsesAndHoldsEveryTensor) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  const Result<ForgeReport> report = Forge(Tiny("qwen3.6-35b-a3b"), path);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const Result<GgufFileSet> set = OpenGguf(path);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->catalog.tensors.size(), report->tensors);
  EXPECT_EQ(set->header.metadata.String("general.architecture"), "qwen35moe");
  EXPECT_EQ(set->catalog.Find("blk.0.ffn_gate_exps.weight")->type, WeightType::kQ4_K);
  EXPECT_EQ(set->catalog.Find("blk.0.ssm_out.weight")->type, WeightType::kQ6_K);
  EXPECT_EQ(set->catalog.Find("output.weight")->type, WeightType::kQ6_K);
  EXPECT_EQ(set->catalog.Find("token_embd.weight")->type, WeightType::kQ8_0);
  EXPECT_EQ(set->catalog.Find("blk.0.ffn_gate_inp.weight")->type, WeightType::kF32);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(ForgeTest, TheSeedDecidesEveryByte) {
  const TempFolder folder;
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  ASSERT_TRUE(Forge(o, folder / "a.gguf").ok());
  ASSERT_TRUE(Forge(o, folder / "b.gguf").ok());
  o.seed = 2;
  ASSERT_TRUE(Forge(o, folder / "c.gguf").ok());
  const std::string a = Slurp(folder / "a.gguf");
  EXPECT_TRUE(a == Slurp(folder / "b.gguf"));
  EXPECT_FALSE(a == Slurp(folder / "c.gguf"));
}

TEST(ForgeTest, WeightsAreSmallFiniteAndNotRepeated) {
  for (const char* recipe_name : {"q4_k", "mxfp4", "q8_0", "f32"}) {
    const ForgeOptions o = Tiny("qwen3-30b-a3b");
    const ForgeShape shape = *FindForgeShape(o.shape, o.overrides);
    const ForgeRecipe recipe = *FindForgeRecipe(recipe_name);
    const std::vector<ForgeTensor> tensors = *ForgeTensors(shape, recipe);
    const ForgeRouting routing = ForgeRouting::Uniform(shape, 8, 1);
    Result<ForgeContent> content = ForgeContent::Make(shape, tensors, routing, 1);
    ASSERT_TRUE(content.ok()) << content.status().ToString();
    for (const ForgeTensor& t : tensors) {
      if (t.fill != ForgeFill::kBulk) continue;
      std::vector<uint8_t> bytes(t.bytes);
      content->Fill(t, 0, bytes);
      const uint64_t n = t.bytes / InfoOf(t.type).block_bytes * InfoOf(t.type).block_elems;
      std::vector<float> values(n);
      DecodeRow(t.type, bytes.data(), values.data(), n);
      double squares = 0;
      for (float v : values) {
        ASSERT_TRUE(std::isfinite(v));
        squares += double{v} * v;
      }
      const double rms = std::sqrt(squares / static_cast<double>(n));
      EXPECT_GT(rms, 2e-4) << t.name;
      EXPECT_LT(rms, 3e-3) << t.name;
      const ByteSpan first(bytes.data(), t.bytes / 2),
          second(bytes.data() + t.bytes / 2, t.bytes / 2);
      EXPECT_FALSE(std::equal(first.begin(), first.end(), second.begin())) << t.name;
    }
  }
}

TEST(ForgeTest, PiecesMakeTheWhole) {
  const ForgeOptions o = Tiny("qwen3.6-35b-a3b");
  const ForgeShape shape = *FindForgeShape(o.shape, o.overrides);
  const std::vector<ForgeTensor> tensors = *ForgeTensors(shape, *FindForgeRecipe("q4_k"));
  const ForgeRouting routing = ForgeRouting::Uniform(shape, 200, 1);
  Result<ForgeContent> content = ForgeContent::Make(shape, tensors, routing, 9);
  ASSERT_TRUE(content.ok());
  for (const ForgeTensor& t : tensors) {
    std::vector<uint8_t> whole(t.bytes), pieces(t.bytes);
    content->Fill(t, 0, whole);
    for (uint64_t at = 0, n = 1; at < t.bytes; at += n, n = n * 3 + 7) {
      n = std::min({n, t.bytes - at, uint64_t{100'001}});
      content->Fill(t, at, MutableByteSpan(pieces).subspan(at, n));
    }
    EXPECT_TRUE(whole == pieces) << t.name;
  }
}

struct Refused {
  const char* what;
  void (*change)(ForgeOptions*);
  const char* word;  // that the error names
};

TEST(ForgeTest, RefusesWhatDoesNotFit) {
  const Refused cases[] = {
      {"shape", [](ForgeOptions* o) { o->shape = "qwen"; }, "qwen3-30b-a3b"},
      {"recipe", [](ForgeOptions* o) { o->recipe = "q5"; }, "q4_k"},
      {"block", [](ForgeOptions* o) { o->overrides.expert_ff = 192; }, "ffn_down_exps"},
      {"hidden block", [](ForgeOptions* o) { o->overrides.hidden = 64; }, "256"},
      {"used", [](ForgeOptions* o) { o->overrides.used = 17; }, "used"},
      {"layers", [](ForgeOptions* o) { o->overrides.layers = 0; }, "layers"},
      {"heads", [](ForgeOptions* o) { o->overrides.kv_heads = 3; }, "heads"},
      {"vocab", [](ForgeOptions* o) { o->overrides.vocab = 200; }, "vocab"},
      {"router",
       [](ForgeOptions* o) {
         o->overrides.experts = 4096;
         o->overrides.hidden = 4096;
       },
       "router"},
  };
  const TempFolder folder;
  for (const Refused& c : cases) {
    ForgeOptions o = Tiny("qwen3-30b-a3b");
    c.change(&o);
    const Status status = Forge(o, folder / "m.gguf").status();
    EXPECT_EQ(status.code(), Code::kUsage) << c.what;
    EXPECT_NE(status.ToString().find(c.word), std::string::npos) << status.ToString();
  }
  EXPECT_EQ(folder.files(), 0u);
}

// Lines of two tokens, 2 layers, top-2.
std::string TraceText() {
  std::string text = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
  for (int layer = 0; layer < 2; ++layer) {
    for (int step = 0; step < 2; ++step) {
      for (int slot = 0; slot < 2; ++slot) {
        text += fmt::format("0,0,{},{},{},{},{},0,0\n", step, layer, slot, step + 2 * slot,
                            slot == 0 ? 0.75 : 0.25);
      }
    }
  }
  return text;
}

Status ForgeWithTrace(const TempFolder& folder, const std::string& text,
                      std::optional<uint32_t> used = {}, uint32_t experts = 16) {
  std::ofstream(folder / "t.csv") << text;
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  o.overrides.layers = 2;
  o.overrides.experts = experts;
  o.overrides.used = used;
  o.trace_path = folder / "t.csv";
  return Forge(o, folder / "m.gguf").status();
}

TEST(ForgeTest, TracesMustFitTheShape) {
  const TempFolder folder;
  const std::string good = TraceText();
  const auto without = [&](const std::string& line, const std::string& instead) {
    std::string text = good;
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    return text.replace(at, line.size(), instead);
  };
  EXPECT_EQ(ForgeWithTrace(folder, good).ToString(), Status().ToString());
  const std::string last = "0,0,1,1,1,3,0.25,0,0\n";
  const std::pair<std::string, const char*> bad[] = {
      {without(last, ""), "slot 1"},                          // a hole
      {without(last, last + last), "slot"},                   // twice
      {without(last, "0,0,1,1,1,1,0.25,0,0\n"), "expert 1"},  // an expert twice
      {without(last, "0,0,1,1,1,3,-0.25,0,0\n"), "negative"},
      {without(last, "0,0,1,1,1,16,0.25,0,0\n"), "experts"},
      {without(last, "0,0,1,2,1,3,0.25,0,0\n"), "layers"},
      {"# n_expert=64\n" + good, "64 experts"},
      {good + "0,0,2,0,0,1,1,0,0\n", "slot 1"},
  };
  for (const auto& [text, word] : bad) {
    const Status status = ForgeWithTrace(folder, text);
    EXPECT_EQ(status.code(), Code::kUsage) << word;
    EXPECT_NE(status.ToString().find(word), std::string::npos) << status.ToString();
  }
  // A token without a layer takes it from the next one; a layer nobody visits is refused.
  std::string gap = without("0,0,0,1,0,0,0.75,0,0\n0,0,0,1,1,2,0.25,0,0\n", "");
  EXPECT_EQ(ForgeWithTrace(folder, gap).ToString(), Status().ToString());
  EXPECT_EQ(ForgeWithTrace(folder, "# n_layer=2\n" + good.substr(0, good.find("0,0,0,1,0"))).code(),
            Code::kUsage);
  EXPECT_EQ(ForgeWithTrace(folder, good, 3).code(), Code::kUsage);
  EXPECT_EQ(ForgeWithTrace(folder, "nonsense").code(), Code::kBadModel);
}

TEST(ForgeRoutingTest, AMissingLayerIsTakenFromTheNextTokenThatHasIt) {
  const auto row = [](uint32_t step, uint32_t layer, uint32_t expert) {
    RouteRow r;
    r.step = step, r.layer = layer, r.expert = expert, r.weight = 1;
    return r;
  };
  RouteTrace trace;
  trace.layers = 2, trace.experts = 16;
  trace.rows = {row(0, 0, 1), row(1, 0, 2), row(2, 0, 3), row(3, 0, 4), row(2, 1, 5)};
  ForgeShape shape = *FindForgeShape("qwen3-30b-a3b", Tiny("qwen3-30b-a3b").overrides);
  shape.layers = 2;
  const Result<ForgeRouting> routing = ForgeRouting::FromTrace(shape, 100, trace, "t");
  ASSERT_TRUE(routing.ok()) << routing.status().ToString();
  EXPECT_EQ(routing->codes(), 4u);
  EXPECT_EQ(routing->borrowed(), 3u);
  for (uint32_t code = 0; code < 4; ++code) {
    EXPECT_EQ(routing->experts(code, 0)[0], code + 1);
    EXPECT_EQ(routing->experts(code, 1)[0], 5u);
  }
}

TEST(ForgeTest, LittleRoomOnTheDiskIsRefusedBeforeWriting) {
  const TempFolder folder;
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  o.free_bytes_min = uint64_t{1} << 60;
  const Status status = Forge(o, folder / "m.gguf").status();
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.ToString().find("room"), std::string::npos) << status.ToString();
  EXPECT_EQ(folder.files(), 0u);
}

TEST(ForgeTest, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  std::ofstream(path) << "old";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;  // a disk that is full after 1 MiB
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = Forge(Tiny("qwen3-30b-a3b"), path).status();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.ToString().find("full"), std::string::npos) << status.ToString();
  EXPECT_EQ(Slurp(path), "old");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(ForgeTest, CancelLeavesNothing) {
  const TempFolder folder;
  ForgeOptions o = Tiny("qwen3-30b-a3b");
  std::atomic<bool> cancel = false;
  o.cancel = &cancel;
  o.progress = [&](const Progress& p) { cancel = p.done > p.total / 2; };
  EXPECT_EQ(Forge(o, folder / "m.gguf").status().what(), "cancelled");
  EXPECT_EQ(folder.files(), 0u);
}

TEST(ForgeTest, ProgressGrowsToTheEnd) {
  const TempFolder folder;
  ForgeOptions o = Tiny("gpt-oss-20b");
  uint64_t last = 0, total = 0;
  o.progress = [&](const Progress& p) {
    EXPECT_EQ(p.stage, "forge");
    EXPECT_GT(p.done, last);
    last = p.done;
    total = p.total;
  };
  const Result<ForgeReport> report = Forge(o, folder / "m.gguf");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(total, report->file_bytes);
  EXPECT_LE(total - last, kGgufAlignment);
}

// Every merge joins two tokens that exist before it into one that exists: for real sizes.
TEST(ForgeVocabularyTest, MergesAreValidAndTokensUnique) {
  for (const auto& [text_tokens, vocab] :
       {std::pair{151'643u, 151'936u}, {248'044u, 248'320u}, {256u, 300u}, {1000u, 1100u}}) {
    const ForgeVocabulary v = MakeForgeVocabulary(text_tokens, vocab);
    ASSERT_EQ(v.tokens.size(), vocab);
    ASSERT_EQ(v.types.size(), vocab);
    ASSERT_EQ(v.merges.size(), text_tokens - 256);
    EXPECT_EQ(v.tokens[v.end_of_turn], "<|im_end|>");
    EXPECT_EQ(v.end_of_text, text_tokens);
    std::unordered_set<std::string> known(v.tokens.begin(), v.tokens.begin() + 256);
    ASSERT_EQ(known.size(), 256u);
    for (size_t i = 0; i < v.merges.size(); ++i) {
      const size_t space = v.merges[i].find(' ');
      const std::string left = v.merges[i].substr(0, space), right = v.merges[i].substr(space + 1);
      ASSERT_TRUE(known.contains(left) && known.contains(right)) << v.merges[i];
      ASSERT_EQ(v.tokens[256 + i], left + right);
      known.insert(left + right);
    }
    known.insert(v.tokens.begin() + text_tokens, v.tokens.end());
    EXPECT_EQ(known.size(), vocab);
  }
}

}  // namespace
}  // namespace sluice
