// Sampling: how the next token is picked from a row of logits.
//
// Contract: plain values, and a Sampler that is deterministic: the same logits, timeline, options
// and seed give the same token on every machine (own generator, own exp/log, integer
// probabilities). The order of operations is fixed and written down in docs/sampling.md. NaN or
// +infinity is an error, never a token. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/status.h"
#include "sluice/types.h"

namespace sluice {

struct SamplingOptions {
  double temperature = 0.8;   // 0: greedy
  int top_k = 40;             // 0: off
  double top_p = 0.95;        // 1: off
  double min_p = 0.05;        // 0: off
  double typical_p = 1;       // 1: off
  double repeat_penalty = 1;  // 1: off
  double presence_penalty = 0, frequency_penalty = 0;
  int penalty_last_n = 64;    // -1: whole timeline
  double dry_multiplier = 0;  // 0: off
  double dry_base = 1.75;
  int dry_allowed_length = 2;
  int dry_last_n = -1;                                      // -1: whole timeline
  std::vector<TokenId> dry_breakers;                        // single tokens that end a repetition
  std::vector<std::vector<TokenId>> dry_breaker_sequences;  // the same for several tokens in a row
  std::vector<std::pair<TokenId, double>> logit_bias;       // -infinity bans the token
  uint64_t seed = 0;
};

// kUsage naming the option when one is outside its range. vocab 0: token ids are not checked.
Status ValidateSampling(const SamplingOptions& options, uint32_t vocab);

// Applies a model's generation_config JSON (temperature, top_k, top_p, min_p, typical_p,
// repetition_penalty, do_sample) to the options; other keys are ignored. kBadModel naming the key
// when a value makes no sense.
Status ApplyGenerationDefaults(const std::string& json, SamplingOptions* options);

class Sampler {
 public:
  Sampler(const SamplingOptions& options, uint32_t vocab);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  // Picks the next token given logits [vocab] and the timeline so far. kFailed on NaN/Inf, kUsage
  // when an option is out of range. No allocation.
  Result<TokenId> Sample(std::span<const float> logits, std::span<const TokenId> history);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
