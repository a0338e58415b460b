// Building a Catalog from the files of one model.
//
// Contract: pure. Every Status names the file and the tensor.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/catalog.h"

namespace sluice {

// Two extents that share a byte are an error naming both tensors. Empty extents overlap nothing.
Status CheckNoOverlap(const std::vector<TensorInfo>& tensors, const std::string& name);

// Appends one file and its tensors (file index set here, sorted by offset); a tensor name that an
// earlier file has already is an error.
Status AppendFile(std::string path, uint64_t file_bytes, std::vector<TensorInfo> tensors,
                  Catalog* catalog);

// "[4096, 32000]": dims[0] first, without trailing ones.
std::string ShapeText(const TensorInfo& tensor);

}  // namespace sluice
