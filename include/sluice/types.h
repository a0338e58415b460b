// Small types shared by every public header.
//
// Contract: plain values; no behaviour.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice {

using TokenId = int32_t;

enum class KvType { kAuto, kF32, kF16, kQ8, kK8V4 };   // kAuto: f16, or f32 with float activations
enum class ActType { kQ8, kF32 };                      // int8 activations, or the float reference mode
enum class IoMode { kAuto, kUring, kPread, kBuffered };

// Progress of long work: `done` of `total` in the unit of the stage ("load" bytes, "prefill" tokens, ...).
struct Progress {
  std::string_view stage;
  uint64_t done = 0, total = 0;
  double elapsed_s = 0;
};
using ProgressFn = std::function<void(const Progress&)>;

}  // namespace sluice
