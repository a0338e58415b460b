// Which model is this? A hash that changes when the weights do, without reading them all.
//
// Contract: hashes, for each file, its size, its first 256 KiB (the header of a GGUF begins there,
// tensor names and metadata included) and 64 samples of 4 KiB spread over it. Costs a few
// milliseconds, also cold. Two files that differ only between the samples look the same: whoever
// patches weights in place must empty the prefix store (`sluice cache rm --all`).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/file.h"

namespace sluice {

// 32 hex digits.
Result<std::string> FingerprintFiles(const std::vector<std::unique_ptr<File>>& files);

}  // namespace sluice
