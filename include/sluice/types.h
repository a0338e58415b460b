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

enum class KvType { kAuto, kF32, kF16, kQ8, kK8V4 };  // kAuto: f16, or f32 with float activations
// How activations meet quantised weights: one int8 plane; two (the second holds what the first
// rounded away, together about 16 bits); floats (the reference mode). kAuto: two planes for small
// models, one for large ones.
enum class ActType { kQ8, kF32, kQ16, kAuto };
enum class IoMode { kAuto, kUring, kPread, kBuffered };

// How positions beyond the trained context are scaled; kModel: as the file says.
enum class RopeMode { kModel, kNone, kLinear, kYarn };

// Progress of long work: `done` of `total` in the unit of the stage ("load" bytes, "prefill"
// tokens, ...).
struct Progress {
  std::string_view stage;
  uint64_t done = 0, total = 0;
  double elapsed_s = 0;
};
using ProgressFn = std::function<void(const Progress&)>;

}  // namespace sluice
