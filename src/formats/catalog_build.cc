#include "formats/catalog_build.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/printable.h"

namespace sluice {

Status CheckNoOverlap(const std::vector<TensorInfo>& tensors, const std::string& name) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].extent.bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].extent.offset < tensors[b].extent.offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& low = tensors[order[i - 1]];
    const TensorInfo& high = tensors[order[i]];
    if (low.extent.offset + low.extent.bytes > high.extent.offset) {
      return Status(Code::kBadModel,
                    fmt::format("tensors '{}' and '{}' overlap at offset {}", Printable(low.name),
                                Printable(high.name), high.extent.offset),
                    name, "the file is damaged or was written by a broken tool");
    }
  }
  return Status();
}

Status AppendFile(std::string path, uint64_t file_bytes, std::vector<TensorInfo> tensors,
                  Catalog* catalog) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.extent.offset < b.extent.offset;
  });
  const uint32_t file = static_cast<uint32_t>(catalog->files.size());
  for (TensorInfo& tensor : tensors) {
    tensor.extent.file = file;
    const uint32_t index = static_cast<uint32_t>(catalog->tensors.size());
    const auto [it, fresh] = catalog->by_name.emplace(tensor.name, index);
    if (!fresh) {
      const TensorInfo& first = catalog->tensors[it->second];
      const std::string& other =
          first.extent.file == file ? path : catalog->files[first.extent.file].path;
      return Status(Code::kBadModel, fmt::format("duplicate tensor '{}'", Printable(tensor.name)),
                    path, fmt::format("it is also in {}", other));
    }
    catalog->tensors.push_back(std::move(tensor));
  }
  catalog->files.push_back({std::move(path), file_bytes});
  return Status();
}

std::string ShapeText(const TensorInfo& tensor) {
  size_t n = tensor.dims.size();
  while (n > 1 && tensor.dims[n - 1] == 1) --n;
  std::string text = "[";
  for (size_t i = 0; i < n; ++i) text += (i ? ", " : "") + std::to_string(tensor.dims[i]);
  return text + "]";
}

}  // namespace sluice
