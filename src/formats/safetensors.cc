// ParseSafetensors: u64 header length, JSON of {name: {dtype, shape, data_offsets}}, then the data.
#include <fmt/format.h>

#include <cstring>

#include "base/limits.h"
#include "formats/catalog_build.h"
#include "formats/hf_folder.h"
#include "formats/printable.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr size_t kDimsMax = 8;  // a vision model's 3-D convolution has five
constexpr const char* kDownloadHint = "fetch the file again and compare its size with the source";

Status Bad(std::string what, const std::string& name, std::string hint = {}) {
  return Status(Code::kBadModel, std::move(what), name, std::move(hint));
}
Status BadTensor(const std::string& tensor, std::string_view what, const std::string& name,
                 std::string hint = {}) {
  return Bad(fmt::format("tensor '{}': {}", Printable(tensor), what), name, std::move(hint));
}

std::optional<WeightType> TypeOf(std::string_view dtype) {
  struct Row {
    const char* name;
    WeightType type;
  };
  constexpr Row kRows[] = {
      {"F32", WeightType::kF32}, {"BF16", WeightType::kBF16}, {"F16", WeightType::kF16},
      {"F64", WeightType::kF64}, {"U8", WeightType::kI8},     {"I8", WeightType::kI8},
      {"BOOL", WeightType::kI8}, {"I16", WeightType::kI16},   {"U16", WeightType::kI16},
      {"I32", WeightType::kI32}, {"U32", WeightType::kI32},   {"I64", WeightType::kI64},
      {"U64", WeightType::kI64},
  };
  for (const Row& row : kRows) {
    if (dtype == row.name) return row.type;
  }
  return std::nullopt;
}

Status ReadShape(const json& shape, const std::string& name, TensorInfo* tensor) {
  if (!shape.is_array() || shape.size() > kDimsMax) {
    return BadTensor(tensor->name, fmt::format("shape is not a list of at most {} sizes", kDimsMax),
                     name);
  }
  tensor->n_dims = static_cast<uint32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    const json& size = shape[shape.size() - 1 - i];
    if (!size.is_number_unsigned()) {
      return BadTensor(tensor->name, "shape holds something else than sizes", name);
    }
    uint64_t& dim = tensor->dims[std::min<size_t>(i, 3)];
    const std::optional<uint64_t> product = CheckedMul(dim, size.get<uint64_t>());
    if (!product) return BadTensor(tensor->name, "the size of its shape overflows", name);
    dim = *product;
  }
  return Status();
}

// data_offsets are relative to the end of the header.
Status ReadOffsets(const json& offsets, uint64_t data_begin, uint64_t file_bytes,
                   const std::string& name, TensorInfo* tensor) {
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return BadTensor(tensor->name, "data_offsets is not a pair of offsets", name);
  }
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end) {
    return BadTensor(tensor->name, fmt::format("data_offsets [{}, {}] are reversed", begin, end),
                     name);
  }
  const std::optional<uint64_t> file_end = CheckedAdd(data_begin, end);
  if (!file_end || *file_end > file_bytes) {
    return BadTensor(tensor->name,
                     fmt::format("truncated: data_offsets [{}, {}] need a file of {} bytes, it has "
                                 "{} bytes",
                                 begin, end, file_end.value_or(UINT64_MAX), file_bytes),
                     name, kDownloadHint);
  }
  tensor->extent.offset = data_begin + begin;
  tensor->extent.bytes = end - begin;
  return Status();
}

Status ReadTensor(const json& entry, uint64_t data_begin, uint64_t file_bytes,
                  const std::string& name, TensorInfo* tensor) {
  if (!entry.is_object()) return BadTensor(tensor->name, "its header entry is no object", name);
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string() || shape == entry.end()) {
    return BadTensor(tensor->name, "its header entry lacks dtype or shape", name);
  }
  if (offsets == entry.end()) return BadTensor(tensor->name, "data_offsets is missing", name);
  const std::string& dtype_name = dtype->get_ref<const std::string&>();
  const std::optional<WeightType> type = TypeOf(dtype_name);
  if (!type) {
    return BadTensor(tensor->name,
                     fmt::format("dtype '{}' is not supported", Printable(dtype_name)), name,
                     "use a BF16, F16 or F32 checkpoint, or a GGUF file");
  }
  tensor->type = *type;
  SLUICE_TRY(ReadShape(*shape, name, tensor));
  SLUICE_TRY(ReadOffsets(*offsets, data_begin, file_bytes, name, tensor));
  std::optional<uint64_t> bytes = InfoOf(*type).block_bytes;
  for (uint64_t dim : tensor->dims) bytes = bytes ? CheckedMul(*bytes, dim) : std::nullopt;
  if (!bytes || *bytes != tensor->extent.bytes) {
    return BadTensor(
        tensor->name,
        fmt::format("shape {} of {} needs {} bytes, data_offsets give {}", ShapeText(*tensor),
                    dtype_name, bytes ? std::to_string(*bytes) : "2^64 or more",
                    tensor->extent.bytes),
        name);
  }
  return Status();
}

// The format allows no bytes that belong to no tensor.
Status CheckNoHoles(const std::vector<TensorInfo>& tensors, uint64_t data_begin,
                    uint64_t file_bytes, const std::string& name) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors) sum += tensor.extent.bytes;
  if (data_begin + sum == file_bytes) return Status();
  return Bad(fmt::format("the tensors cover {} of {} data bytes: data_offsets leave a hole or the "
                         "file has bytes to spare",
                         sum, file_bytes - data_begin),
             name, kDownloadHint);
}

}  // namespace

Result<std::vector<TensorInfo>> ParseSafetensors(ByteSpan head, uint64_t file_bytes,
                                                 const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("version https://git-lfs")) {
    return Bad("not a safetensors file: it looks like a git-lfs pointer", name,
               "fetch the real file with 'git lfs pull'");
  }
  if (file_bytes < 8 || head.size() < 8) {
    return Bad(fmt::format("truncated safetensors file: {} bytes do not hold the header length",
                           std::min<uint64_t>(file_bytes, head.size())),
               name, kDownloadHint);
  }
  uint64_t length;
  std::memcpy(&length, head.data(), sizeof length);
  if (length > file_bytes - 8) {
    return Bad(fmt::format("truncated safetensors file: the header needs {} bytes, the file has {}",
                           length, file_bytes),
               name, kDownloadHint);
  }
  if (length > limits::kMetadataBytesMax || length > head.size() - 8) {
    return Bad(fmt::format("the header of {} bytes is too large (limit {})", length,
                           limits::kMetadataBytesMax),
               name);
  }
  SLUICE_ASSIGN(const json header, ParseJson(text.substr(8, length), name + " header"));
  if (!header.is_object()) return Bad("the safetensors header is no JSON object", name);
  if (header.size() > limits::kTensorCountMax) return Bad("too many tensors in the header", name);

  std::vector<TensorInfo> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    TensorInfo tensor;
    tensor.name = key;
    if (key.size() > limits::kNameBytesMax) return BadTensor(key, "name too long", name);
    SLUICE_TRY(ReadTensor(entry, 8 + length, file_bytes, name, &tensor));
    tensors.push_back(std::move(tensor));
  }
  SLUICE_TRY(CheckNoOverlap(tensors, name));
  SLUICE_TRY(CheckNoHoles(tensors, 8 + length, file_bytes, name));
  return tensors;
}

}  // namespace sluice
