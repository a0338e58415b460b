// GGUF v2/v3, little-endian, one file or a split set.
//
// Contract: ParseGguf takes the first bytes of a file (the header section, or more) and the file's
// size and never reads outside the span, trusts no length, caps every count (base/limits.h).
// Metadata values are views into the span: a vocabulary of 250 k strings costs nothing until
// somebody walks it. OpenGguf reads only the header of each shard; the bytes live in GgufHeader and
// can be dropped when config and tokenizer are built. Errors are kBadModel naming file and key or
// tensor. Format: docs/gguf.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "formats/catalog.h"

namespace sluice {

enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// Bytes of a number or bool; 0 for strings, arrays and numbers that name no type.
uint64_t GgufScalarBytes(GgufValueType type);

struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;  // of an array
  uint64_t count = 1;                          // of an array
  ByteSpan bytes;  // the raw value (a string without its length; an array's elements)

  std::optional<uint64_t> AsU64() const;  // any integer type, not negative
  std::optional<double> AsF64() const;    // any number
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;
  // An array of integers or bools (as 0 and 1), none negative, of at most count_max elements.
  std::optional<std::vector<uint64_t>> AsU64List(uint64_t count_max) const;
};

// Walks an array of strings in order; checked already by the parser, so Next never fails before
// count.
class GgufStringCursor {
 public:
  explicit GgufStringCursor(const GgufValue& array) : rest_(array.bytes), left_(array.count) {}
  bool Next(std::string_view* out);

 private:
  ByteSpan rest_;
  uint64_t left_;
};

class GgufMetadata {
 public:
  const GgufValue* Find(std::string_view key) const;
  std::optional<uint64_t> U64(std::string_view key) const;
  std::optional<double> F64(std::string_view key) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::string_view> String(std::string_view key) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& entries() const { return entries_; }
  std::vector<std::pair<std::string_view, GgufValue>>& mutable_entries() { return entries_; }

 private:
  std::vector<std::pair<std::string_view, GgufValue>> entries_;
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;  // of the tensor data section in the file
  GgufMetadata metadata;
  // Offsets absolute in the file; file index 0. OpenGguf moves them into the catalog and leaves
  // this empty.
  std::vector<TensorInfo> tensors;
};

// `name` is for errors only. A header longer than the span but inside file_bytes asks for more
// bytes by returning a header_incomplete value instead of an error.
struct GgufParse {
  bool header_incomplete = false;
  GgufHeader header;
};
Result<GgufParse> ParseGguf(ByteSpan bytes, uint64_t file_bytes, const std::string& name);

// The opened set: metadata of the first shard and the merged catalog. Any shard of a set may be
// named; the first is found by its file name. Every shard must say the same split.count and its own
// split.no.
struct GgufFileSet {
  std::vector<uint8_t> header_bytes;  // what metadata points into (stable: moved with the vector)
  GgufHeader header;
  Catalog catalog;
};
Result<GgufFileSet> OpenGguf(const std::string& path);

}  // namespace sluice
