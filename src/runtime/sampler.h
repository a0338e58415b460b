// The sampler behind sluice::Sampler: one token from a row of logits.
//
// Contract: order of operations (docs/sampling.md): check, logit bias, repeat/frequency/presence
// penalties, DRY, [greedy ends here], top-k, typical, top-p, min-p, temperature, draw. Each filter
// keeps at least one candidate. The draw depends on (logits, timeline, options, seed) only: the
// generator is a hash of seed and timeline length, and probabilities are integers (2^40 for the
// likeliest token), so sums have no order. No allocation in Sample after ReserveTimeline. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sluice/sampling.h"

namespace sluice {

class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, uint32_t vocab);

  const Status& status() const { return status_; }  // of the options: what Sample would return

  // logits [vocab]; timeline: every token so far, the prompt included. kFailed "invalid logits" on
  // NaN or infinity, naming token id and position; kUsage when an option is out of range or the
  // bias bans all.
  Result<TokenId> Sample(std::span<const float> logits, std::span<const TokenId> timeline);

  // Sizes what grows with the timeline (DRY's table) once.
  void ReserveTimeline(uint32_t tokens_max);

  // Bytes held for these options (what a planner must reserve); 0 for plain greedy.
  static uint64_t MemoryBytes(const SamplingOptions& options, uint32_t vocab, uint32_t tokens_max);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  Status Adjust(std::span<const float> logits, std::span<const TokenId> timeline);
  void CollectTopK(std::span<const float> row);
  void CollectAll(std::span<const float> row);
  void Typical();
  void TopP();
  void MinP();
  TokenId Draw(uint64_t position);

  float MaxLogit() const;
  uint64_t Weigh(double temperature);  // fills weights_, returns their sum (> 0)
  bool Before(uint32_t a, uint32_t b) const {
    return keys_[a] < keys_[b] || (keys_[a] == keys_[b] && a < b);
  }
  uint32_t LastOfMass(size_t count, uint64_t target);
  void KeepMass(uint64_t target);  // keeps the smallest keys_ that together weigh >= target

  SamplingOptions options_;
  Status status_;  // of the options
  uint32_t vocab_;
  bool adjusts_ = false, penalises_ = false;
  std::vector<float> row_;  // [vocab] adjusted logits; empty when nothing adjusts them
  std::vector<uint32_t>
      per_token_;                  // [vocab] counts, all zero between uses; empty without penalties
  std::vector<uint32_t> repeats_;  // [timeline] DRY
  std::vector<Candidate> candidates_;  // ascending id, except inside CollectTopK
  std::vector<uint64_t> weights_;      // [candidates] probability * 2^40 / the largest one
  std::vector<double> keys_;           // [candidates] what a mass filter orders by, smallest first
  std::vector<uint32_t> order_;        // scratch of KeepMass
};

}  // namespace sluice
