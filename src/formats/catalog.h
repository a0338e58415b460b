// The catalog: what a model's files hold, as named extents.
//
// Contract: plain data, immutable after parsing; every extent was checked to lie inside its file,
// dims and byte counts to be free of overflow, names to be unique. dims are in GGUF order: dims[0]
// runs along a row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quant/types.h"

namespace sluice {

struct Extent {
  uint32_t file = 0;  // index into Catalog::files
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct TensorInfo {
  std::string name;
  WeightType type = WeightType::kF32;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};
  Extent extent;
};

struct Catalog {
  struct FileEntry {
    std::string path;
    uint64_t bytes = 0;
  };
  std::vector<FileEntry> files;
  std::vector<TensorInfo> tensors;  // in file order
  std::unordered_map<std::string, uint32_t> by_name;

  const TensorInfo* Find(std::string_view name) const {
    auto it = by_name.find(std::string(name));
    return it == by_name.end() ? nullptr : &tensors[it->second];
  }
};

}  // namespace sluice
