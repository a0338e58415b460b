// LookaheadTrial: does reading ahead pay on this machine, with this model and this text?
//
// Contract: pure bookkeeping. Decoding alternates short blocks with and without look-ahead, the
// faster way (by medians of the time per token) is kept for a while, then the trial is repeated.
// Logits do not depend on the outcome (promise 2). Measured: +11 % to -16 % for one machine, model
// and accuracy or another (docs/learned/look-ahead.md), so neither answer is right for everybody.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

class LookaheadTrial {
 public:
  static constexpr uint32_t kBlockTokens = 4, kBlocks = 6;  // off, on, off, on, ...
  static constexpr uint32_t kKeepTokens = 232;              // a trial costs a tenth of the tokens

  // Whether the next token should read ahead.
  bool on() const;
  // That token took this long.
  void Add(double seconds);
  uint32_t trials() const { return trials_; }

 private:
  bool InTrial() const { return token_ < kBlockTokens * kBlocks; }
  void Decide();

  std::array<double, kBlockTokens * kBlocks> seconds_{};
  uint32_t token_ = 0, trials_ = 0;
  bool winner_ = false;
};

}  // namespace sluice
