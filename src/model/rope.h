// Rotary position embedding: inverse frequencies and the cos/sin rows of a run of positions.
//
// Contract: pure after construction, thread-safe. Frequencies follow docs/architectures.md (linear,
// llama3, yarn with the range truncated or not); evaluated in double, the angle rounded to float as
// the reference does.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace sluice {

class RopeTable {
 public:
  RopeTable() = default;
  // divisors: llama3 factors from a GGUF file's rope_freqs tensor [dims/2], or empty.
  RopeTable(const RopeConfig& config, const std::vector<float>& divisors);

  uint32_t half() const { return static_cast<uint32_t>(inverse_.size()); }  // dims / 2
  // cos, sin: [half] of one position, multiplied by the attention factor.
  void Fill(uint32_t position, float* cos, float* sin) const;

 private:
  std::vector<double> inverse_;
  float attn_factor_ = 1;
};

}  // namespace sluice
