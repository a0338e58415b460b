// Sizes that all backends share, and why.
//
// Contract: constants and one pure function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "io/file.h"

namespace sluice {

// Large enough for the device's full rate, small enough that demand waits for less than half a
// millisecond behind read-ahead that is already in the kernel (docs/io.md has the measurements).
constexpr uint64_t kPieceBytesMax = kMiB;
constexpr int kLanesMax = 8;  // threads of a pool: more only take the processor from the kernels
constexpr int kUringDepthMax = 64;  // pieces in the kernel

// What direct reads of every file can agree on; an empty file is never read.
inline uint32_t DirectAlignment(const std::vector<const File*>& files) {
  uint32_t alignment = 1;
  for (const File* file : files) {
    if (file->direct_fd() >= 0) alignment = std::max(alignment, file->direct_alignment());
  }
  return alignment;
}

}  // namespace sluice
