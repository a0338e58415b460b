#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "formats/gguf.h"
#include "tests/formats/gguf_builder.h"
#include "tests/formats/shared_files.h"

namespace sluice {
namespace {

using testing::Bytes;
using testing::GgufBuilder;
using testing::Raw;
using testing::RawString;
using testing::TinyLlama;
using testing::TinyQwen3Moe;

Result<GgufParse> Parse(const std::string& file) {
  return ParseGguf(Bytes(file), file.size(), "x.gguf");
}

TEST(GgufParse, WholeFile) {
  const std::string file = TinyLlama().Build();
  Result<GgufParse> parse = Parse(file);
  ASSERT_TRUE(parse.ok()) << parse.status().ToString();
  EXPECT_FALSE(parse->header_incomplete);
  const GgufHeader& h = parse->header;
  EXPECT_EQ(h.version, 3u);
  EXPECT_EQ(h.data_offset % 32, 0u);
  ASSERT_EQ(h.tensors.size(), 20u);
  EXPECT_EQ(h.tensors[0].name, "token_embd.weight");
  EXPECT_EQ(h.tensors[0].dims[0], 32u);
  EXPECT_EQ(h.tensors[0].dims[1], 24u);
  EXPECT_EQ(h.tensors[0].dims[2], 1u);
  EXPECT_EQ(h.tensors[0].extent.offset, h.data_offset);
  EXPECT_EQ(h.tensors[0].extent.bytes, 32u * 24 * 4);
  EXPECT_EQ(h.tensors.back().extent.offset + h.tensors.back().extent.bytes, file.size());
  EXPECT_EQ(h.metadata.U64("llama.block_count"), 2u);
  EXPECT_EQ(h.metadata.String("general.architecture"), "llama");
  EXPECT_FALSE(h.metadata.U64("llama.nothing"));
}

TEST(GgufParse, Version2AndTrailingBytesLoad) {
  GgufBuilder b = TinyLlama();
  b.version = 2;
  EXPECT_TRUE(Parse(b.Build()).ok());
  EXPECT_TRUE(Parse(TinyLlama().Build() + std::string(100, '\0')).ok());
}

TEST(GgufParse, EveryValueType) {
  GgufBuilder b = TinyLlama();
  b.Put("v.u8", 0, Raw<uint8_t>(200)).Put("v.i8", 1, Raw<int8_t>(-3));
  b.Put("v.u16", 2, Raw<uint16_t>(60000)).Put("v.i16", 3, Raw<int16_t>(-300));
  b.Put("v.u32", 4, Raw<uint32_t>(4000000000u)).Put("v.i32", 5, Raw<int32_t>(70000));
  b.Put("v.f32", 6, Raw(1.5f)).Put("v.bool", 7, Raw<uint8_t>(1)).Text("v.s", "hi");
  b.Put("v.u64", 10, Raw<uint64_t>(UINT64_MAX)).Put("v.i64", 11, Raw<int64_t>(-1));
  b.Put("v.f64", 12, Raw(2.25));
  b.Texts("v.list", {"a", "", "long string"}).List<uint8_t>("v.flags", 7, {1, 0, 1});
  b.List<int32_t>("v.neg", 5, {1, -1}).List<float>("v.reals", 6, {1, 2});
  const std::string file = b.Build();
  Result<GgufParse> parse = Parse(file);
  ASSERT_TRUE(parse.ok()) << parse.status().ToString();
  const GgufMetadata& m = parse->header.metadata;
  EXPECT_EQ(m.U64("v.u8"), 200u);
  EXPECT_FALSE(m.U64("v.i8"));
  EXPECT_EQ(m.F64("v.i8"), -3.0);
  EXPECT_EQ(m.U64("v.u16"), 60000u);
  EXPECT_EQ(m.F64("v.i16"), -300.0);
  EXPECT_EQ(m.U64("v.u32"), 4000000000u);
  EXPECT_EQ(m.U64("v.i32"), 70000u);
  EXPECT_EQ(m.F64("v.f32"), 1.5);
  EXPECT_FALSE(m.U64("v.f32"));
  EXPECT_EQ(m.Bool("v.bool"), true);
  EXPECT_FALSE(m.Bool("v.u8"));
  EXPECT_EQ(m.String("v.s"), "hi");
  EXPECT_EQ(m.U64("v.u64"), UINT64_MAX);
  EXPECT_FALSE(m.U64("v.i64"));
  EXPECT_EQ(m.F64("v.f64"), 2.25);
  EXPECT_EQ(m.Find("v.flags")->AsU64List(8), (std::vector<uint64_t>{1, 0, 1}));
  EXPECT_FALSE(m.Find("v.flags")->AsU64List(2));
  EXPECT_FALSE(m.Find("v.neg")->AsU64List(8));
  EXPECT_FALSE(m.Find("v.reals")->AsU64List(8));
  EXPECT_FALSE(m.Find("v.list")->AsU64List(8));

  GgufStringCursor cursor(*m.Find("v.list"));
  std::string_view text;
  std::vector<std::string> texts;
  while (cursor.Next(&text)) texts.emplace_back(text);
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "", "long string"}));
}

TEST(GgufParse, AlignmentMovesData) {
  GgufBuilder b = TinyLlama();
  b.alignment = 64;
  b.Put("general.alignment", 10, Raw<uint64_t>(64));  // not the usual u32
  Result<GgufParse> parse = Parse(b.Build());
  ASSERT_TRUE(parse.ok()) << parse.status().ToString();
  EXPECT_EQ(parse->header.alignment, 64u);
  for (const TensorInfo& t : parse->header.tensors) EXPECT_EQ(t.extent.offset % 64, 0u);
}

// One break each; the words are what a reader must find in the error.
struct BadCase {
  const char* what;
  std::function<std::string()> file;
  std::vector<const char*> words;
};

std::string Edited(const std::function<void(GgufBuilder&)>& edit) {
  GgufBuilder b = TinyLlama();
  edit(b);
  return b.Build();
}

std::string LfsPointer() {
  return "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n";
}

const BadCase kBadCases[] = {
    {"empty", [] { return std::string(); }, {"not a GGUF file", "empty"}},
    {"lfs", LfsPointer, {"not a GGUF file", "lfs"}},
    {"html", [] { return std::string("<!DOCTYPE html><html>404</html>"); }, {"web page"}},
    {"json", [] { return std::string("{\"error\":\"not found\"}         "); }, {"JSON"}},
    {"version 1", [] { return Edited([](auto& b) { b.version = 1; }); }, {"version 1"}},
    {"version 99", [] { return Edited([](auto& b) { b.version = 99; }); }, {"version 99"}},
    {"big endian", [] { return Edited([](auto& b) { b.version = 0x03000000; }); }, {"endian"}},
    {"tensor count",
     [] { return Edited([](auto& b) { b.tensor_count = UINT64_MAX; }); },
     {"tensor count"}},
    {"key count",
     [] { return Edited([](auto& b) { b.key_count = uint64_t{1} << 60; }); },
     {"key count"}},
    {"a key too many", [] { return Edited([](auto& b) { b.key_count = b.keys.size() + 1; }); }, {}},
    {"key length",
     [] {
       std::string file = TinyLlama().Build();
       file.replace(24, 8, Raw(uint64_t{1} << 63));
       return file;
     },
     {"key 0", "length"}},
    {"value type",
     [] { return Edited([](auto& b) { b.Put("x.type", 99, "1234"); }); },
     {"x.type", "type 99"}},
    {"array count wraps",
     [] {
       return Edited([](auto& b) {
         b.Put("x.wrap", 9, Raw<uint32_t>(4) + Raw((uint64_t{1} << 62) + 1) + "1234");
       });
     },
     {"x.wrap", "array"}},
    {"array too long",
     [] {
       return Edited(
           [](auto& b) { b.Put("x.long", 9, Raw<uint32_t>(0) + Raw(uint64_t{1} << 40) + "1234"); });
     },
     {"x.long", "truncated"}},
    {"array of strings too long",
     [] {
       return Edited(
           [](auto& b) { b.Put("x.long", 9, Raw<uint32_t>(8) + Raw(uint64_t{1} << 60) + "1234"); });
     },
     {"x.long"}},
    {"array element type",
     [] {
       return Edited(
           [](auto& b) { b.Put("x.arr", 9, Raw<uint32_t>(77) + Raw(uint64_t{1} << 60)); });
     },
     {"x.arr", "77"}},
    {"array of arrays",
     [] { return Edited([](auto& b) { b.Put("x.arr", 9, Raw<uint32_t>(9) + Raw<uint64_t>(1)); }); },
     {"x.arr"}},
    {"string past the end",
     [] { return Edited([](auto& b) { b.Put("x.s", 8, Raw(uint64_t{1} << 62)); }); },
     {"x.s", "truncated"}},
    {"string in array past the end",
     [] {
       return Edited([](auto& b) {
         b.Put("x.list", 9, Raw<uint32_t>(8) + Raw<uint64_t>(1) + Raw(UINT64_MAX));
       });
     },
     {"x.list", "truncated"}},
    {"alignment 0",
     [] { return Edited([](auto& b) { b.U32("general.alignment", 0); }); },
     {"general.alignment"}},
    {"alignment 13",
     [] { return Edited([](auto& b) { b.U32("general.alignment", 13); }); },
     {"general.alignment", "13"}},
    {"alignment huge",
     [] { return Edited([](auto& b) { b.Put("general.alignment", 10, Raw(uint64_t{1} << 62)); }); },
     {"general.alignment"}},
    {"alignment text",
     [] { return Edited([](auto& b) { b.Text("general.alignment", "32"); }); },
     {"general.alignment"}},
    {"duplicate key",
     [] { return Edited([](auto& b) {
            b.keys.push_back({"llama.block_count", 4, Raw(9u)});
          }); },
     {"duplicate", "llama.block_count"}},
    {"duplicate tensor",
     [] { return Edited([](auto& b) {
            b.Add("blk.0.attn_q.weight", {32, 32});
          }); },
     {"duplicate", "blk.0.attn_q.weight"}},
    {"tensor name length",
     [] {
       std::string file = TinyLlama().Build();
       const size_t at = file.find("token_embd.weight");
       return file.replace(at - 8, 8, Raw(uint64_t{1} << 40));
     },
     {"tensor 0", "length"}},
    {"five dimensions",
     [] { return Edited([](auto& b) {
            b.Find("blk.0.attn_k.weight").dims = {32, 16, 1, 1, 1};
          }); },
     {"blk.0.attn_k.weight", "5 dimensions"}},
    {"n_dims 2^31",
     [] { return Edited([](auto& b) { b.Find("blk.0.attn_k.weight").n_dims = 1u << 31; }); },
     {"blk.0.attn_k.weight", "dimensions"}},
    {"zero dimension",
     [] { return Edited([](auto& b) {
            b.Find("blk.0.attn_q.weight").dims = {32, 0};
          }); },
     {"blk.0.attn_q.weight", "zero dim"}},
    {"dimensions overflow",
     [] {
       return Edited([](auto& b) {
         b.Find("token_embd.weight").dims = {32, (uint64_t{1} << 58) + 24};
       });
     },
     {"token_embd.weight", "overflow"}},
    {"row overflow",
     [] {
       return Edited([](auto& b) { b.Find("token_embd.weight").dims = {uint64_t{1} << 63, 1}; });
     },
     {"token_embd.weight", "overflow"}},
    {"unknown type",
     [] { return Edited([](auto& b) { b.Find("blk.1.ffn_up.weight").type = 200; }); },
     {"blk.1.ffn_up.weight", "200"}},
    {"retired type",
     [] { return Edited([](auto& b) { b.Find("blk.1.ffn_up.weight").type = 4; }); },
     {"blk.1.ffn_up.weight", "Q4_2"}},
    {"NVFP4",
     [] { return Edited([](auto& b) { b.Find("blk.1.ffn_up.weight").type = 40; }); },
     {"blk.1.ffn_up.weight", "NVFP4"}},
    {"row not whole blocks",
     [] {
       return Edited([](auto& b) {
         b.Find("blk.0.attn_v.weight").type = 8;
         b.Find("blk.0.attn_v.weight").dims = {16, 32};
       });
     },
     {"blk.0.attn_v.weight", "multiple", "block"}},
    {"offset unaligned",
     [] { return Edited([](auto& b) { b.Find("blk.0.attn_norm.weight").offset = 4; }); },
     {"blk.0.attn_norm.weight", "offset", "align"}},
    {"offset past the end",
     [] { return Edited([](auto& b) { b.Find("output_norm.weight").offset = 1 << 30; }); },
     {"output_norm.weight", "offset", "bounds", "truncated"}},
    {"offset overflows",
     [] { return Edited([](auto& b) { b.Find("output_norm.weight").offset = UINT64_MAX - 31; }); },
     {"output_norm.weight", "overflow"}},
    {"overlap",
     [] {
       return Edited([](auto& b) { b.Find("blk.1.attn_v.weight").offset = 32 * 24 * 4 - 32; });
     },
     {"blk.1.attn_v.weight", "overlap"}},
};

TEST(GgufParse, BadFilesAreRefusedByName) {
  for (const BadCase& bad : kBadCases) {
    const std::string file = bad.file();
    const Result<GgufParse> parse = Parse(file);
    ASSERT_FALSE(parse.ok()) << bad.what;
    EXPECT_EQ(parse.status().code(), Code::kBadModel) << bad.what;
    const std::string text = parse.status().ToString();
    EXPECT_NE(text.find("x.gguf"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (const char* word : bad.words) {
      EXPECT_NE(text.find(word), std::string::npos) << bad.what << ": " << text;
    }
  }
}

// Every cut of a complete file is found, and says how long the file is.
// data_step: distance of cuts beyond the header, where the code runs the same way for each.
void CutEverywhere(const std::string& file, size_t data_step = 1) {
  const size_t header = Parse(file)->header.data_offset;
  for (size_t n = 1; n < file.size(); n += n < header ? 1 : data_step) {
    // A heap copy of the exact size lets the address sanitizer see a read past the end.
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(n));
    const Result<GgufParse> parse = ParseGguf(ByteSpan(cut.data(), cut.size()), n, "x.gguf");
    ASSERT_FALSE(parse.ok()) << n;
    const std::string text = parse.status().ToString();
    ASSERT_NE(text.find("truncated"), std::string::npos) << n << ": " << text;
    ASSERT_NE(text.find(std::to_string(n) + " bytes"), std::string::npos) << n << ": " << text;
  }
}
TEST(GgufParse, CutAtEveryByteDense) { CutEverywhere(TinyLlama().Build()); }
TEST(GgufParse, CutAtEveryByteExperts) { CutEverywhere(TinyQwen3Moe().Build()); }

TEST(GgufParse, CutSharedFilesAtEveryByte) {
  for (const char* name : {"ok-llama-f32", "ok-qwen3moe-f32"}) {
    const std::string file =
        testing::ReadAll(testing::SharedPath(std::string("cases/dev/gguf/") + name + ".gguf"));
    if (file.empty()) GTEST_SKIP() << "SHARED FILES ABSENT: " << testing::SharedPath("cases/dev");
    ASSERT_TRUE(Parse(file).ok());
    CutEverywhere(file, 61);
  }
}

// A span that ends inside the header asks for more, whatever the place.
TEST(GgufParse, AsksForMore) {
  const std::string file = TinyLlama().Build();
  const uint64_t header = Parse(file)->header.data_offset;
  uint64_t asked = 0;
  for (size_t n = 0; n < header; ++n) {
    const std::vector<uint8_t> part(file.begin(), file.begin() + static_cast<ptrdiff_t>(n));
    const Result<GgufParse> parse =
        ParseGguf(ByteSpan(part.data(), part.size()), file.size(), "x.gguf");
    ASSERT_TRUE(parse.ok()) << n << parse.status().ToString();
    if (parse->header_incomplete) asked = n;
  }
  EXPECT_GE(asked + 32, header);
  EXPECT_FALSE(ParseGguf(Bytes(file).first(header), file.size(), "x.gguf")->header_incomplete);
}

TEST(GgufParse, LongNamesAndControlBytesStayOneLine) {
  GgufBuilder b = TinyLlama();
  b.Put("bad\n\x1b[31m" + std::string(3000, 'k'), 99, "");
  const Result<GgufParse> parse = Parse(b.Build());
  ASSERT_FALSE(parse.ok());
  const std::string text = parse.status().ToString();
  EXPECT_LT(text.size(), 600u);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sluice
