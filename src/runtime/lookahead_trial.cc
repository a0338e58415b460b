#include "runtime/lookahead_trial.h"

#include <algorithm>

namespace sluice {

bool LookaheadTrial::on() const { return InTrial() ? token_ / kBlockTokens % 2 == 1 : winner_; }

void LookaheadTrial::Add(double seconds) {
  if (InTrial()) seconds_[token_] = seconds;
  ++token_;
  if (token_ == kBlockTokens * kBlocks) Decide();
  if (token_ == kBlockTokens * kBlocks + kKeepTokens) token_ = 0;
}

// The first token of a block is left out: it still profits, or suffers, from the block before.
void LookaheadTrial::Decide() {
  constexpr uint32_t kEach = (kBlockTokens - 1) * kBlocks / 2;
  std::array<std::array<double, kEach>, 2> way;
  std::array<uint32_t, 2> n{};
  for (uint32_t i = 0; i < seconds_.size(); ++i) {
    if (i % kBlockTokens == 0) continue;
    const uint32_t on = i / kBlockTokens % 2;
    way[on][n[on]++] = seconds_[i];
  }
  for (auto& times : way) std::nth_element(times.begin(), times.begin() + kEach / 2, times.end());
  winner_ = way[1][kEach / 2] < way[0][kEach / 2];
  ++trials_;
}

}  // namespace sluice
