// The penalties that depend on the timeline: repeat, frequency, presence and DRY.
//
// Contract: pure functions on caller-owned buffers; semantics as llama.cpp documents them.
// per_token is [vocab] of zeros on entry and on return. Ids outside the vocabulary are ignored.
// Linear in the window.
#pragma once

#include <cstdint>
#include <span>

#include "sluice/sampling.h"

namespace sluice {

// The last last_n tokens of the timeline; all of it for -1.
std::span<const TokenId> LastTokens(std::span<const TokenId> timeline, int last_n);

// A seen token's logit is divided (multiplied where <= 0) by repeat_penalty, then loses
// count * frequency_penalty + presence_penalty.
void ApplyPenalties(const SamplingOptions& options, std::span<const TokenId> timeline,
                    std::span<float> row, std::span<uint32_t> per_token);

// "Don't repeat yourself": a token that would continue a repetition of n >= dry_allowed_length
// tokens loses dry_multiplier * dry_base^(n - dry_allowed_length). repeats needs one entry per
// token of the window.
void ApplyDry(const SamplingOptions& options, std::span<const TokenId> timeline,
              std::span<float> row, std::span<uint32_t> per_token, std::span<uint32_t> repeats);

}  // namespace sluice
