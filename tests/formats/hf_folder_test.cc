#include "formats/hf_folder.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "tests/formats/safetensors_builder.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::Bytes;
using testing::Raw;
using testing::SafetensorsBuilder;
using testing::TempFolder;

SafetensorsBuilder Small() {
  SafetensorsBuilder b;
  b.Add("a.weight", {3, 8}).Add("b.weight", {2, 3, 4}, "BF16").Add("c", {5}, "U8");
  return b;
}
Result<std::vector<TensorInfo>> Parse(const std::string& file) {
  return ParseSafetensors(Bytes(file), file.size(), "x.safetensors");
}

TEST(Json, ValuesAndOrder) {
  const auto v = ParseJson(R"({"a":[1,-2,2.5,"s",null,true,{"b":[]}],"z":{}})", "x");
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(*v, json::parse(R"({"a":[1,-2,2.5,"s",null,true,{"b":[]}],"z":{}})"));
  EXPECT_EQ(*ParseJson("3", "x"), json(3));
}

TEST(Json, BadTextNamesFileAndByte) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\xff\"", "[1] 2", "1e999", "{\"a\":1,\"a\":2}"}) {
    const auto v = ParseJson(text, "x.json");
    ASSERT_FALSE(v.ok()) << text;
    EXPECT_NE(v.status().ToString().find("x.json"), std::string::npos);
  }
  EXPECT_NE(ParseJson("[1,]", "x").status().ToString().find("byte 4"), std::string::npos);
  EXPECT_NE(ParseJson("{\"a\":1,\"a\":2}", "x").status().ToString().find("duplicate key 'a'"),
            std::string::npos);
}

TEST(Json, DepthIsCapped) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(ParseJson(nested(limits::kJsonDepthMax), "x").ok());
  EXPECT_FALSE(ParseJson(nested(limits::kJsonDepthMax + 1), "x").ok());
  EXPECT_FALSE(ParseJson(std::string(1000000, '['), "x").ok());
}

TEST(Safetensors, Whole) {
  const std::string file = Small().Build();
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  ASSERT_EQ(tensors->size(), 3u);
  for (const TensorInfo& t : *tensors) {
    if (t.name == "a.weight") {
      EXPECT_EQ(t.dims[0], 8u);
      EXPECT_EQ(t.dims[1], 3u);
      EXPECT_EQ(t.extent.bytes, 96u);
      EXPECT_EQ(t.extent.offset, file.size() - 96 - 48 - 5);
    }
    if (t.name == "b.weight") {
      EXPECT_EQ(t.type, WeightType::kBF16);
      EXPECT_EQ(t.dims[0], 4u);
      EXPECT_EQ(t.dims[2], 2u);
    }
    if (t.name == "c") {
      EXPECT_EQ(t.type, WeightType::kI8);
    }
  }
}

TEST(Safetensors, MetadataScalarsEmptyAndFiveDimensions) {
  SafetensorsBuilder b = Small();
  b.header["__metadata__"] = {{"format", "pt"}};
  b.Add("scalar", {}).Add("none", {0, 4}).Add("conv", {2, 3, 2, 2, 2});
  const auto tensors = Parse(b.Build());
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ(tensors->size(), 6u);
  for (const TensorInfo& t : *tensors) {
    if (t.name == "conv") {
      EXPECT_EQ(t.n_dims, 5u);
      EXPECT_EQ(t.dims, (std::array<uint64_t, 4>{2, 2, 2, 6}));
    }
  }
}

// One break each, and a word that the error must hold.
struct BadHeader {
  const char* what;
  std::function<void(SafetensorsBuilder&)> edit;
  const char* word;
};
const BadHeader kBadHeaders[] = {
    {"reversed",
     [](auto& b) {
       b.header["a.weight"]["data_offsets"] = {96, 0};
     },
     "a.weight"},
    {"short list", [](auto& b) { b.header["a.weight"]["data_offsets"] = json::array(); }, "offset"},
    {"text", [](auto& b) { b.header["a.weight"]["data_offsets"] = "0"; }, "offset"},
    {"negative",
     [](auto& b) {
       b.header["a.weight"]["data_offsets"] = {-1, 95};
     },
     "offset"},
    {"float",
     [](auto& b) {
       b.header["a.weight"]["data_offsets"] = {0.5, 96};
     },
     "offset"},
    {"absent", [](auto& b) { b.header["a.weight"].erase("data_offsets"); }, "offset"},
    {"past the end",
     [](auto& b) {
       b.header["c"]["data_offsets"] = {1000, 1005};
     },
     "truncated"},
    {"huge",
     [](auto& b) {
       b.header["c"]["data_offsets"] = {UINT64_MAX - 5, UINT64_MAX};
     },
     "'c'"},
    {"shape",
     [](auto& b) {
       b.header["a.weight"]["shape"] = {1000, 1000};
     },
     "shape"},
    {"shape overflow",
     [](auto& b) {
       b.header["a.weight"]["shape"] = {uint64_t{1} << 62, 8};
     },
     "a.weight"},
    {"shape wraps",
     [](auto& b) {
       b.header["a.weight"]["shape"] = {uint64_t{1} << 62, uint64_t{1} << 62};
     },
     "a.weight"},
    {"shape text", [](auto& b) { b.header["a.weight"]["shape"] = "3x8"; }, "shape"},
    {"shape negative",
     [](auto& b) {
       b.header["a.weight"]["shape"] = {-3, 8};
     },
     "shape"},
    {"shape long", [](auto& b) { b.header["a.weight"]["shape"] = std::vector<int>(9, 1); },
     "shape"},
    {"overlap",
     [](auto& b) {
       b.header["b.weight"]["data_offsets"] = {48, 96};
     },
     "overlap"},
    {"hole", [](auto& b) { b.data_bytes += 8; }, "hole"},
    {"dtype", [](auto& b) { b.header["a.weight"]["dtype"] = "F8_E4M3"; }, "F8_E4M3"},
    {"dtype number", [](auto& b) { b.header["a.weight"]["dtype"] = 3; }, "dtype"},
    {"entry", [](auto& b) { b.header["a.weight"] = 3; }, "a.weight"},
    {"array header", [](auto& b) { b.header_text = "[]"; }, "header"},
    {"broken header", [](auto& b) { b.header_text = "{\"a\":"; }, "JSON"},
    {"twice",
     [](auto& b) {
       const std::string one = R"("a":{"dtype":"U8","shape":[149],"data_offsets":[0,149]})";
       b.header_text = "{" + one + "," + one + "}";
     },
     "duplicate"},
};

TEST(Safetensors, BadHeaders) {
  for (const BadHeader& c : kBadHeaders) {
    SafetensorsBuilder b = Small();
    c.edit(b);
    const auto tensors = Parse(b.Build());
    ASSERT_FALSE(tensors.ok()) << c.what;
    const std::string text = tensors.status().ToString();
    EXPECT_NE(text.find(c.word), std::string::npos) << c.what << ": " << text;
    EXPECT_NE(text.find("x.safetensors"), std::string::npos) << text;
  }
}

TEST(Safetensors, CutAtEveryByte) {
  const std::string file = Small().Build();
  for (size_t n = 0; n < file.size(); ++n) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(n));
    const auto tensors = ParseSafetensors(ByteSpan(cut.data(), cut.size()), n, "x");
    ASSERT_FALSE(tensors.ok()) << n;
    EXPECT_NE(tensors.status().ToString().find("truncated"), std::string::npos)
        << tensors.status().ToString();
  }
}

TEST(Safetensors, HeaderLengthIsNotBelieved) {
  std::string file = Small().Build();
  for (uint64_t length : {UINT64_MAX, uint64_t{1} << 62, uint64_t{file.size()}}) {
    file.replace(0, 8, Raw(length));
    const auto tensors = Parse(file);
    ASSERT_FALSE(tensors.ok());
    EXPECT_NE(tensors.status().ToString().find("header"), std::string::npos);
  }
}

TEST(HfFolder, SingleFile) {
  TempFolder folder;
  folder.Write("config.json", R"({"model_type":"llama"})");
  folder.Write("model.safetensors", Small().Build());
  folder.Write("tokenizer.json", "{}");
  folder.Write("tokenizer_config.json", R"({"chat_template":"T"})");
  folder.Write("generation_config.json", R"({"top_k":20})");
  Result<HfFolder> hf = OpenHfFolder(folder.path() + "/", true);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->path, folder.path());
  EXPECT_EQ(hf->catalog.tensors.size(), 3u);
  EXPECT_TRUE(hf->has_tokenizer_json);
  EXPECT_EQ(hf->chat_template, "T");
  EXPECT_EQ(hf->generation_config["top_k"], 20);
}

TEST(HfFolder, TemplatePreference) {
  TempFolder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"A"},)"
                                        R"({"name":"default","template":"B"}]})");
  EXPECT_EQ(OpenHfFolder(folder.path(), false)->chat_template, "B");
  folder.Write("chat_template.json", R"({"chat_template":"C"})");
  EXPECT_EQ(OpenHfFolder(folder.path(), false)->chat_template, "C");
  folder.Write("chat_template.jinja", "D");
  EXPECT_EQ(OpenHfFolder(folder.path(), false)->chat_template, "D");
}

// Two shards and their index; `edit` changes the index before it is written.
void WriteSharded(const TempFolder& folder, const std::function<void(json&)>& edit) {
  folder.Write("config.json", "{}");
  folder.Write("model-00001-of-00002.safetensors", SafetensorsBuilder().Add("a", {2}).Build());
  folder.Write("model-00002-of-00002.safetensors", SafetensorsBuilder().Add("b", {2}).Build());
  json index = {
      {"weight_map",
       {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}}};
  edit(index);
  folder.Write("model.safetensors.index.json", index.dump());
}

TEST(HfFolder, Sharded) {
  TempFolder folder;
  WriteSharded(folder, [](json&) {});
  Result<HfFolder> hf = OpenHfFolder(folder.path(), true);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->catalog.files.size(), 2u);
  EXPECT_EQ(hf->catalog.Find("b")->extent.file, 1u);
}

TEST(HfFolder, BadFolders) {
  const auto refused = [](const std::function<void(const TempFolder&)>& fill, const char* word) {
    TempFolder folder;
    fill(folder);
    const Result<HfFolder> hf = OpenHfFolder(folder.path(), true);
    ASSERT_FALSE(hf.ok()) << word;
    EXPECT_EQ(hf.status().code(), Code::kBadModel);
    EXPECT_NE(hf.status().ToString().find(word), std::string::npos) << hf.status().ToString();
  };
  const auto index = [](const std::function<void(json&)>& edit) {
    return [edit](const TempFolder& folder) { WriteSharded(folder, edit); };
  };
  refused([](const TempFolder&) {}, "config.json");
  refused([](const TempFolder& f) { f.Write("config.json", "{}"); }, "safetensors");
  refused([](const TempFolder& f) { f.Write("config.json", "{"); }, "config.json");
  refused([](const TempFolder& f) { f.Write("config.json", "[]"); }, "config.json");
  refused([](const TempFolder& f) { f.Write("x.gguf", "GGUF"); }, "gguf");
  refused(
      [](const TempFolder& f) {
        f.Write("config.json", "{}");
        f.Write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid x\n");
      },
      "lfs");
  refused(
      [](const TempFolder& f) {
        f.Write("config.json", "{}");
        f.Write("model.safetensors", "");
      },
      "truncated");
  refused(index([](json& i) { i["weight_map"]["c"] = "model-00003-of-00003.safetensors"; }),
          "model-00003-of-00003.safetensors");
  refused(index([](json& i) { i["weight_map"]["c"] = "model-00001-of-00002.safetensors"; }), "'c'");
  refused(index([](json& i) { i["weight_map"]["a"] = "model-00002-of-00002.safetensors"; }), "'a'");
  refused(index([](json& i) { i["weight_map"]["a"] = "../x.safetensors"; }), "'a'");
  refused(index([](json& i) { i["weight_map"]["a"] = 3; }), "'a'");
  refused(index([](json& i) { i.erase("weight_map"); }), "weight_map");
  EXPECT_EQ(OpenHfFolder("/nonexistent-folder", true).status().code(), Code::kIo);
}

}  // namespace
}  // namespace sluice
