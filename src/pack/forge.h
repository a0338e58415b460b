// sluice forge: a synthetic GGUF file of a real model's exact shape (docs/forge.md).
//
// Contract: Forge writes out_path whole or not at all (PATH.tmp, then renamed), streaming: memory
// stays below 200 MB whatever the size. The weights are small random blocks; the routing is
// planted: token t visits the plan's experts with the plan's weights in every engine, and greedy
// decoding answers t with t + 1, the last code with 0. The same arguments give the same bytes.
// Blocks; thread-safe apart from two calls with the same path. Errors: kUsage for a size, recipe or
// trace that does not fit, kIo for a disk that is full or fails, kFailed "cancelled".
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "pack/forge_shape.h"
#include "sluice/status.h"
#include "sluice/types.h"

namespace sluice {

struct ForgeOptions {
  std::string shape;
  ForgeOverrides overrides;
  std::string recipe;      // empty: the shape's
  std::string trace_path;  // empty: uniform routing
  uint64_t seed = 1;
  uint64_t free_bytes_min = uint64_t{1} << 30;  // left on the disk
  ProgressFn progress;                          // stage "forge", in bytes
  const std::atomic<bool>* cancel = nullptr;
};

struct ForgeReport {
  uint64_t file_bytes = 0;
  uint32_t tensors = 0, layers = 0, experts = 0, used = 0;
  uint32_t codes = 0;          // tokens with their own routing
  uint32_t prompt_tokens = 0;  // of the trace's prompt; 0 without a trace
  uint64_t expert_bytes = 0;   // one expert, all three matrices
  double seconds = 0;
  bool direct = false;  // written past the page cache
};

Result<ForgeReport> Forge(const ForgeOptions& options, const std::string& out_path);

// The same file with a hole for its data: the header of Forge and the full size, a few MB on the
// disk, to plan with. Replaces what path (a file that the caller owns and removes) held; it is not
// renamed into place.
Status ForgeOutline(const ForgeOptions& options, const std::string& path);

}  // namespace sluice
