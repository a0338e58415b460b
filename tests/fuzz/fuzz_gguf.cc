// GGUF header to metadata, config, roles and tokenizer check. The input is the header; the tensor
// data that it speaks of is taken to exist, so that a few kilobytes reach the binding code.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/catalog_build.h"
#include "formats/gguf.h"
#include "formats/gguf_tokenizer_check.h"
#include "model/model_map.h"

namespace {

using namespace sluice;

// Walks every value, as readers of metadata do.
uint64_t Walk(const GgufMetadata& metadata) {
  uint64_t sum = 0;
  for (const auto& [key, value] : metadata.entries()) {
    sum += key.size() + value.AsU64().value_or(0) + (value.AsBool() ? 1 : 0);
    sum += value.AsF64() ? 1 : 0;
    if (const auto text = value.AsString()) sum += text->size();
    if (const auto list = value.AsU64List(1 << 16)) sum += list->size();
    if (value.type != GgufValueType::kArray || value.element != GgufValueType::kString) continue;
    GgufStringCursor cursor(value);
    std::string_view text;
    uint64_t count = 0;
    while (cursor.Next(&text)) {
      ++count;
      sum += text.empty() ? 0 : static_cast<uint8_t>(text.back());
    }
    if (count != value.count) __builtin_trap();  // the parser vouched for the whole array
  }
  return sum;
}

void CheckExtents(const ModelMap& map, uint64_t file_bytes) {
  const auto inside = [&](const Extent& extent) {
    if (extent.offset > file_bytes || extent.bytes > file_bytes - extent.offset) __builtin_trap();
  };
  for (const LayerMap& layer : map.layers) {
    for (const auto& matrix : layer.matrix) {
      if (!matrix) continue;
      inside(matrix->extent);
      if (matrix->extent.bytes != matrix->rows * matrix->row_bytes) __builtin_trap();
    }
    for (const auto& vector : layer.vector) {
      if (vector) inside(vector->extent);
    }
    if (!layer.experts) continue;
    for (const ExpertPart& part : layer.experts->part) {
      for (uint32_t e = 0; part.stride > 0 && e < map.config.moe.experts; ++e) inside(part.At(e));
      for (const Extent& extent : part.each) inside(extent);
    }
  }
}

void Bind(ByteSpan bytes, uint64_t file_bytes) {
  Result<GgufParse> parse = ParseGguf(bytes, file_bytes, "fuzz");
  if (!parse.ok() || parse->header_incomplete) return;
  GgufFileSet set;
  set.header = std::move(parse->header);
  volatile uint64_t sum = Walk(set.header.metadata);
  (void)sum;
  if (!AppendFile("fuzz", file_bytes, std::move(set.header.tensors), &set.catalog).ok()) {
    __builtin_trap();  // names were checked already
  }
  const Result<ModelMap> map = BindGguf(std::move(set), "fuzz");
  if (map.ok()) CheckExtents(*map, file_bytes);
  const uint64_t rows = map.ok() ? map->embedding.rows : 1;
  (void)CheckTokenizerKeys(set.header.metadata, rows, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes(data, size);
  Bind(bytes, size + (uint64_t{1} << 30));
  Bind(bytes, size);
  return 0;
}
