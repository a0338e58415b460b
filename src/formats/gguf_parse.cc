// ParseGguf: header bytes to metadata views and tensor extents. Layout and limits: docs/gguf.md.
#include <fmt/format.h>

#include <cstring>
#include <unordered_set>

#include "base/limits.h"
#include "formats/catalog_build.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace sluice {
namespace {

constexpr uint32_t kDimsMax = 4;
constexpr uint64_t kAlignmentMax = uint64_t{1} << 30;
constexpr const char* kDownloadHint = "fetch the file again and compare its size with the source";

bool KnownValueType(uint32_t type) { return type <= static_cast<uint32_t>(GgufValueType::kF64); }

// What a file that does not start with the magic is, for the hint.
std::string GuessContent(ByteSpan bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto starts = [&](std::string_view prefix) { return text.starts_with(prefix); };
  if (starts("version https://git-lfs")) {
    return "it looks like a git-lfs pointer; fetch the real file with 'git lfs pull'";
  }
  if (starts("FUGG")) return "it looks like a GGUF file with its bytes swapped";
  if (starts("lmgg") || starts("fmgg") || starts("tjgg") || starts("ggml") || starts("ggjt")) {
    return "it looks like a GGML file from before GGUF; convert it again";
  }
  if (starts("PK\x03\x04")) return "it looks like a zip archive (a PyTorch checkpoint?)";
  if (starts("\x1f\x8b") || starts("\x28\xb5\x2f\xfd")) return "it looks compressed; unpack it";
  if (text.size() > 8 && text[8] == '{') return "it looks like a safetensors file; open its folder";
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '<') {
    return "it looks like a web page (an error page saved by the download?)";
  }
  if (first != std::string_view::npos && text[first] == '{') return "it looks like JSON text";
  return "the first four bytes should be 'GGUF'";
}

class Parser {
 public:
  Parser(ByteSpan bytes, uint64_t file_bytes, const std::string& name)
      : bytes_(bytes), file_bytes_(file_bytes), name_(name) {}

  Result<GgufParse> Run() {
    const bool done = Magic() && Counts() && Metadata() && Tensors() && Extents();
    if (!status_.ok()) return status_;
    out_.header_incomplete = !done;
    if (!done) out_.header = GgufHeader();
    return std::move(out_);
  }

 private:
  bool Fail(std::string what, std::string hint = {}) {
    status_ = Status(Code::kBadModel, std::move(what), name_, std::move(hint));
    return false;
  }

  // True when `n` more bytes are in the span. Otherwise either more bytes are asked for, or the
  // file itself ends too early. `where` is a callable giving the part being read, for the error
  // only.
  template <typename Where>
  bool Need(uint64_t n, Where where) {
    if (n <= bytes_.size() - pos_) return true;
    const std::optional<uint64_t> end = CheckedAdd(pos_, n);
    if (!end || *end > file_bytes_) {
      return Fail(
          fmt::format("truncated GGUF file: {} needs {} bytes at offset {}, the file has {} bytes",
                      where(), n, pos_, file_bytes_),
          kDownloadHint);
    }
    if (*end > limits::kMetadataBytesMax) {
      return Fail(fmt::format("header too large: {} ends at byte {}, the limit is {}", where(),
                              *end, limits::kMetadataBytesMax));
    }
    return false;  // incomplete
  }

  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, bytes_.data() + pos_, sizeof value);
    pos_ += sizeof value;
    return value;
  }
  ByteSpan TakeBytes(uint64_t n) {
    const ByteSpan span = bytes_.subspan(pos_, n);
    pos_ += n;
    return span;
  }

  bool Magic() {
    if (file_bytes_ == 0) return Fail("not a GGUF file: it is empty", kDownloadHint);
    const size_t n = std::min<size_t>(4, bytes_.size());
    if (n > 0 && std::memcmp(bytes_.data(), "GGUF", n) != 0) {
      return Fail("not a GGUF file (wrong magic)", GuessContent(bytes_));
    }
    if (!Need(24, [] { return "the file header"; })) return false;
    pos_ = 4;
    const uint32_t version = Take<uint32_t>();
    out_.header.version = version;
    if (version == 2 || version == 3) return true;
    if ((version & 0xffff) == 0 && version != 0) {
      return Fail(fmt::format("big-endian GGUF file (version {} in the other byte order)",
                              __builtin_bswap32(version)),
                  "convert it to little-endian (gguf-py: gguf_convert_endian)");
    }
    return Fail(fmt::format("GGUF version {} is not supported", version),
                version < 2 ? "convert the model again; versions 2 and 3 are read"
                            : "versions 2 and 3 are read; a newer Sluice may know it");
  }

  bool Counts() {
    tensor_count_ = Take<uint64_t>();
    key_count_ = Take<uint64_t>();
    if (tensor_count_ > limits::kTensorCountMax) {
      return Fail(fmt::format("tensor count {} is beyond the limit of {}", tensor_count_,
                              limits::kTensorCountMax),
                  "the header is damaged");
    }
    if (key_count_ > limits::kMetadataKeysMax) {
      return Fail(fmt::format("metadata key count {} is beyond the limit of {}", key_count_,
                              limits::kMetadataKeysMax),
                  "the header is damaged");
    }
    return true;
  }

  // A length-prefixed name; `kind` is "key" or "tensor".
  bool Name(const char* kind, uint64_t index, std::string_view* out) {
    const auto where = [&] { return fmt::format("the name of {} {}", kind, index); };
    if (!Need(8, where)) return false;
    const uint64_t length = Take<uint64_t>();
    if (length > limits::kNameBytesMax) {
      return Fail(fmt::format("{} {} has a name length of {} bytes, the limit is {}", kind, index,
                              length, limits::kNameBytesMax),
                  "the header is damaged");
    }
    if (!Need(length, where)) return false;
    const ByteSpan span = TakeBytes(length);
    *out = std::string_view(reinterpret_cast<const char*>(span.data()), span.size());
    return true;
  }

  bool Metadata() {
    std::unordered_set<std::string_view> seen;
    for (uint64_t i = 0; i < key_count_; ++i) {
      std::string_view key;
      if (!Name("key", i, &key)) return false;
      if (!seen.insert(key).second) return Fail(fmt::format("duplicate key '{}'", Printable(key)));
      const auto where = [&] { return fmt::format("key '{}'", Printable(key)); };
      if (!Need(4, where)) return false;
      const uint32_t type = Take<uint32_t>();
      if (!KnownValueType(type)) {
        return Fail(fmt::format("key '{}' has the unknown value type {}", Printable(key), type));
      }
      GgufValue value;
      value.type = static_cast<GgufValueType>(type);
      if (!Value(key, &value)) return false;
      out_.header.metadata.mutable_entries().emplace_back(key, value);
    }
    return Alignment();
  }

  bool Value(std::string_view key, GgufValue* value) {
    const auto where = [&] { return fmt::format("the value of key '{}'", Printable(key)); };
    if (value->type == GgufValueType::kArray) return Array(key, value);
    uint64_t bytes = GgufScalarBytes(value->type);
    if (value->type == GgufValueType::kString) {
      if (!Need(8, where)) return false;
      bytes = Take<uint64_t>();
    }
    if (!Need(bytes, where)) return false;
    value->bytes = TakeBytes(bytes);
    return true;
  }

  bool Array(std::string_view key, GgufValue* value) {
    const auto where = [&] { return fmt::format("the array of key '{}'", Printable(key)); };
    if (!Need(12, where)) return false;
    const uint32_t element = Take<uint32_t>();
    value->count = Take<uint64_t>();
    if (!KnownValueType(element) || element == static_cast<uint32_t>(GgufValueType::kArray)) {
      return Fail(fmt::format("key '{}' is an array of element type {}, which is not supported",
                              Printable(key), element));
    }
    value->element = static_cast<GgufValueType>(element);
    const bool strings = value->element == GgufValueType::kString;
    // A string takes at least its length word, so this bounds the loop below by the bytes present.
    const std::optional<uint64_t> bytes =
        CheckedMul(value->count, strings ? 8 : GgufScalarBytes(value->element));
    if (!bytes) {
      return Fail(fmt::format("key '{}' is an array of {} elements: the size overflows",
                              Printable(key), value->count));
    }
    if (!Need(*bytes, where)) return false;
    const uint64_t begin = pos_;
    if (!strings) {
      pos_ += *bytes;
    } else {
      for (uint64_t i = 0; i < value->count; ++i) {
        const auto item = [&] { return fmt::format("string {} of key '{}'", i, Printable(key)); };
        if (!Need(8, item)) return false;
        const uint64_t length = Take<uint64_t>();
        if (!Need(length, item)) return false;
        pos_ += length;
      }
    }
    value->bytes = bytes_.subspan(begin, pos_ - begin);
    return true;
  }

  bool Alignment() {
    const GgufValue* value = out_.header.metadata.Find("general.alignment");
    if (value == nullptr) return true;
    // Any integer type is accepted: a reader that ignores an unexpected one shifts every tensor.
    const std::optional<uint64_t> alignment = value->AsU64();
    if (!alignment) return Fail("general.alignment is not a whole number");
    if (*alignment == 0 || (*alignment & (*alignment - 1)) != 0 || *alignment > kAlignmentMax) {
      return Fail(fmt::format("general.alignment is {}, it must be a power of two up to {}",
                              *alignment, kAlignmentMax));
    }
    out_.header.alignment = *alignment;
    return true;
  }

  bool Tensors() {
    std::unordered_set<std::string_view> seen;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      std::string_view name;
      if (!Name("tensor", i, &name)) return false;
      if (!seen.insert(name).second) {
        return Fail(fmt::format("duplicate tensor '{}'", Printable(name)));
      }
      TensorInfo tensor;
      tensor.name = std::string(name);
      if (!Shape(&tensor) || !TypeAndOffset(&tensor)) return false;
      out_.header.tensors.push_back(std::move(tensor));
    }
    out_.header.data_offset = AlignUp(pos_, out_.header.alignment);
    return true;
  }

  bool Shape(TensorInfo* tensor) {
    const auto where = [&] { return fmt::format("tensor '{}'", Printable(tensor->name)); };
    if (!Need(4, where)) return false;
    tensor->n_dims = Take<uint32_t>();
    if (tensor->n_dims > kDimsMax) {
      return Fail(fmt::format("tensor '{}' has {} dimensions, at most {} are possible",
                              Printable(tensor->name), tensor->n_dims, kDimsMax));
    }
    if (!Need(uint64_t{8} * tensor->n_dims, where)) return false;
    for (uint32_t d = 0; d < tensor->n_dims; ++d) {
      tensor->dims[d] = Take<uint64_t>();
      if (tensor->dims[d] == 0) {
        return Fail(
            fmt::format("tensor '{}' has a zero dimension (dim {})", Printable(tensor->name), d));
      }
    }
    return true;
  }

  bool TypeAndOffset(TensorInfo* tensor) {
    const auto where = [&] { return fmt::format("tensor '{}'", Printable(tensor->name)); };
    if (!Need(12, where)) return false;
    const uint32_t type = Take<uint32_t>();
    tensor->extent.offset = Take<uint64_t>();
    const WeightTypeInfo* info = FindWeightType(type);
    if (info == nullptr) {
      return Fail(fmt::format("tensor '{}' has the unsupported type {} ({})",
                              Printable(tensor->name), type, KnownTypeName(type)),
                  "use a file in another quantisation");
    }
    tensor->type = info->type;
    if (tensor->dims[0] % info->block_elems != 0) {
      return Fail(
          fmt::format("tensor '{}': a row of {} elements is not a multiple of the {} block "
                      "of {}",
                      Printable(tensor->name), tensor->dims[0], info->name, info->block_elems));
    }
    std::optional<uint64_t> bytes = RowBytes(info->type, tensor->dims[0]);
    for (uint32_t d = 1; d < kDimsMax && bytes; ++d) bytes = CheckedMul(*bytes, tensor->dims[d]);
    if (!bytes) {
      return Fail(fmt::format("tensor '{}': the size of its dimensions {} overflows",
                              Printable(tensor->name), ShapeText(*tensor)));
    }
    tensor->extent.bytes = *bytes;
    if (tensor->extent.offset % out_.header.alignment != 0) {
      return Fail(fmt::format("tensor '{}': offset {} is not a multiple of the alignment {}",
                              Printable(tensor->name), tensor->extent.offset,
                              out_.header.alignment));
    }
    return true;
  }

  // Offsets become absolute; everything must lie in the file and nothing twice.
  bool Extents() {
    const TensorInfo* outside = nullptr;
    uint64_t needed = 0;
    for (TensorInfo& tensor : out_.header.tensors) {
      const std::optional<uint64_t> begin =
          CheckedAdd(out_.header.data_offset, tensor.extent.offset);
      const std::optional<uint64_t> end =
          begin ? CheckedAdd(*begin, tensor.extent.bytes) : std::nullopt;
      if (!end) {
        return Fail(fmt::format("tensor '{}': offset {} plus size {} overflows",
                                Printable(tensor.name), tensor.extent.offset, tensor.extent.bytes));
      }
      tensor.extent.offset = *begin;
      needed = std::max(needed, *end);
      if (*end > file_bytes_ && outside == nullptr) outside = &tensor;
    }
    if (outside != nullptr) {
      return Fail(
          fmt::format("truncated GGUF file: tensor '{}' ({} bytes at offset {}) is out of bounds; "
                      "the tensors need {} bytes, the file has {} bytes",
                      Printable(outside->name), outside->extent.bytes, outside->extent.offset,
                      needed, file_bytes_),
          kDownloadHint);
    }
    status_ = CheckNoOverlap(out_.header.tensors, name_);
    return status_.ok();
  }

  ByteSpan bytes_;
  uint64_t file_bytes_;
  const std::string& name_;
  uint64_t pos_ = 0;
  uint64_t tensor_count_ = 0, key_count_ = 0;
  GgufParse out_;
  Status status_;
};

}  // namespace

Result<GgufParse> ParseGguf(ByteSpan bytes, uint64_t file_bytes, const std::string& name) {
  if (bytes.size() > file_bytes) bytes = bytes.first(file_bytes);
  return Parser(bytes, file_bytes, name).Run();
}

}  // namespace sluice
