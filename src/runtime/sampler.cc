#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "runtime/sampler_math.h"
#include "runtime/sampler_penalties.h"

namespace sluice {
namespace {

// The likeliest token weighs 2^40: anything below 1e-12 of it is never drawn, and 2^22 tokens (the
// largest vocabulary) still sum below 2^63.
constexpr double kWeightOne = 1099511627776.0;
constexpr double kWeightCut = -40;  // exp of this rounds to no weight

// Up to this many, one pass with a bounded heap beats a selection over the whole vocabulary.
constexpr int kHeapTopK = 256;

uint64_t Mix(uint64_t z) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The random 64 bits that belong to this place of this seed's timeline.
uint64_t RandomAt(uint64_t seed, uint64_t position) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  return Mix(Mix(seed + kGolden) + kGolden * (position + 1));
}

Status InvalidLogits(float value, size_t id, size_t position) {
  return Status(
      Code::kFailed,
      fmt::format("invalid logits: {} for token id {}", std::isnan(value) ? "NaN" : "+Inf", id),
      fmt::format("token position {}", position), "the model file or its weights are damaged");
}

// Lowest index of the largest value, or the error that makes the row useless.
Result<TokenId> CheckedArgmax(std::span<const float> row, size_t position) {
  float best = -INFINITY;
  size_t best_id = row.size();
  for (size_t i = 0; i < row.size(); ++i) {
    if (!(row[i] <= FLT_MAX)) return InvalidLogits(row[i], i, position);
    if (row[i] > best) {
      best = row[i];
      best_id = i;
    }
  }
  if (best_id == row.size()) {
    return Status(Code::kFailed, "invalid logits: all are -Inf",
                  fmt::format("token position {}", position),
                  "the model file or its weights are damaged");
  }
  return static_cast<TokenId>(best_id);
}

bool Penalises(const SamplingOptions& o) {
  return o.penalty_last_n != 0 &&
         (o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0);
}
bool Dries(const SamplingOptions& o) { return o.dry_multiplier > 0 && o.dry_last_n != 0; }

size_t CandidatesMax(const SamplingOptions& o, uint32_t vocab) {
  if (o.temperature == 0) return 0;
  return o.top_k > 0 && o.top_k <= kHeapTopK ? std::min<size_t>(o.top_k, vocab) : vocab;
}
bool FiltersByMass(const SamplingOptions& o) { return o.top_p < 1 || o.typical_p < 1; }

uint64_t MassTarget(double share, uint64_t total, bool beyond) {
  const double exact = share * static_cast<double>(total);
  const double target = beyond ? std::floor(exact) + 1 : std::ceil(exact);
  if (!(target > 1)) return 1;
  return target >= static_cast<double>(total) ? total : static_cast<uint64_t>(target);
}

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options, uint32_t vocab)
    : options_(options), status_(ValidateSampling(options, vocab)), vocab_(vocab) {
  if (!status_.ok()) return;
  penalises_ = Penalises(options_);
  adjusts_ = penalises_ || Dries(options_) || !options_.logit_bias.empty();
  if (adjusts_) row_.resize(vocab);
  if (penalises_ || Dries(options_)) per_token_.resize(vocab);
  const size_t n = CandidatesMax(options_, vocab);
  candidates_.reserve(n);
  weights_.resize(n);
  if (FiltersByMass(options_)) {
    keys_.resize(n);
    order_.resize(n);
  }
}

void TokenSampler::ReserveTimeline(uint32_t tokens_max) {
  if (!Dries(options_)) return;
  if (options_.dry_last_n > 0) {
    tokens_max = std::min(tokens_max, static_cast<uint32_t>(options_.dry_last_n));
  }
  if (repeats_.size() < tokens_max) repeats_.resize(tokens_max);
}

uint64_t TokenSampler::MemoryBytes(const SamplingOptions& options, uint32_t vocab,
                                   uint32_t tokens_max) {
  const bool counts = Penalises(options) || Dries(options);
  uint64_t bytes = counts || !options.logit_bias.empty() ? vocab * sizeof(float) : 0;
  if (counts) bytes += uint64_t{vocab} * sizeof(uint32_t);
  if (Dries(options)) bytes += uint64_t{tokens_max} * sizeof(uint32_t);
  const uint64_t n = CandidatesMax(options, vocab);
  bytes += n * (sizeof(Candidate) + sizeof(uint64_t));
  if (FiltersByMass(options)) bytes += n * (sizeof(double) + sizeof(uint32_t));
  return bytes;
}

Result<TokenId> TokenSampler::Sample(std::span<const float> logits,
                                     std::span<const TokenId> timeline) {
  if (!status_.ok()) return status_;
  if (logits.size() != vocab_) {
    return Status(Code::kFailed,
                  fmt::format("a row of {} logits for a vocabulary of {}", logits.size(), vocab_));
  }
  SLUICE_ASSIGN(TokenId best, CheckedArgmax(logits, timeline.size()));
  if (adjusts_) {
    SLUICE_TRY(Adjust(logits, timeline));
    SLUICE_ASSIGN(best, CheckedArgmax(row_, timeline.size()));
  }
  if (options_.temperature == 0) return best;
  const std::span<const float> row = adjusts_ ? std::span<const float>(row_) : logits;
  if (options_.top_k > 0) {
    CollectTopK(row);
  } else {
    CollectAll(row);
  }
  if (options_.typical_p < 1) Typical();
  if (options_.top_p < 1) TopP();
  if (options_.min_p > 0) MinP();
  return Draw(timeline.size());
}

Status TokenSampler::Adjust(std::span<const float> logits, std::span<const TokenId> timeline) {
  std::copy(logits.begin(), logits.end(), row_.begin());
  for (const auto& [id, bias] : options_.logit_bias) {
    const double sum = double{row_[id]} + bias;
    row_[id] = sum == -INFINITY
                   ? -INFINITY
                   : static_cast<float>(std::clamp(sum, double{-FLT_MAX}, double{FLT_MAX}));
  }
  const bool any = std::any_of(row_.begin(), row_.end(), [](float x) { return x >= -FLT_MAX; });
  if (!any) return Status(Code::kUsage, "logit_bias bans every token of the vocabulary");
  if (penalises_) ApplyPenalties(options_, timeline, row_, per_token_);
  if (Dries(options_)) {
    const size_t window = LastTokens(timeline, options_.dry_last_n).size();
    if (repeats_.size() < window) repeats_.resize(std::bit_ceil(window));
    ApplyDry(options_, timeline, row_, per_token_, repeats_);
  }
  return Status();
}

void TokenSampler::CollectAll(std::span<const float> row) {
  candidates_.clear();
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] >= -FLT_MAX) candidates_.push_back({row[i], static_cast<TokenId>(i)});
  }
}

void TokenSampler::CollectTopK(std::span<const float> row) {
  const size_t k = static_cast<size_t>(options_.top_k);
  if (k > kHeapTopK) {
    CollectAll(row);
    if (candidates_.size() <= k) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(), Better);
    candidates_.resize(k);
  } else {
    // The worst of the best k is on top of the heap; ids rise, so an equal logit never replaces it.
    candidates_.clear();
    for (size_t i = 0; i < row.size(); ++i) {
      if (!(row[i] >= -FLT_MAX)) continue;
      const Candidate next{row[i], static_cast<TokenId>(i)};
      if (candidates_.size() < std::min(k, row.size())) {
        candidates_.push_back(next);
        std::push_heap(candidates_.begin(), candidates_.end(), Better);
      } else if (row[i] > candidates_.front().logit) {
        std::pop_heap(candidates_.begin(), candidates_.end(), Better);
        candidates_.back() = next;
        std::push_heap(candidates_.begin(), candidates_.end(), Better);
      }
    }
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

float TokenSampler::MaxLogit() const {
  float best = -INFINITY;
  for (const Candidate& c : candidates_) best = std::max(best, c.logit);
  return best;
}

uint64_t TokenSampler::Weigh(double temperature) {
  constexpr size_t kBlock = 16;  // a fixed length without branches: vector code
  constexpr double kToInt =
      4503599627370496.0;  // + 2^52 leaves the rounded integer in the low bits
  const double best = MaxLogit();
  const size_t n = candidates_.size();
  uint64_t total = 0;
  for (size_t start = 0; start < n; start += kBlock) {
    const size_t count = std::min(kBlock, n - start);
    double x[kBlock] = {};
    // 0 / tiny is 0 and -1 / tiny is -infinity: both are right, so no special case for tiny values.
    for (size_t i = 0; i < count; ++i) {
      x[i] = std::max((candidates_[start + i].logit - best) / temperature, kWeightCut);
    }
    uint64_t w[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
      w[i] = __builtin_bit_cast(uint64_t, DetExp(x[i]) * kWeightOne + kToInt) & 0xFFFFFFFFFFFFFull;
    }
    for (size_t i = 0; i < count; ++i) total += weights_[start + i] = w[i];
  }
  return total;
}

// Locally typical sampling (Meister et al. 2022): the tokens whose surprise is nearest to the
// entropy.
void TokenSampler::Typical() {
  const uint64_t total = Weigh(1);
  const double best = MaxLogit(), sum = static_cast<double>(total);
  const double log_sum = DetLog(sum / kWeightOne);
  double entropy = 0;  // summed in the order of ids: data, not schedule
  for (size_t i = 0; i < candidates_.size(); ++i) {
    keys_[i] = log_sum - (candidates_[i].logit - best);  // surprise: -ln p
    if (weights_[i] > 0) entropy += static_cast<double>(weights_[i]) / sum * keys_[i];
  }
  for (size_t i = 0; i < candidates_.size(); ++i) keys_[i] = std::fabs(keys_[i] - entropy);
  KeepMass(MassTarget(options_.typical_p, total, /*beyond=*/true));
}

// Nucleus sampling: the likeliest tokens that together reach top_p.
void TokenSampler::TopP() {
  const uint64_t total = Weigh(1);
  const double best = MaxLogit();
  for (size_t i = 0; i < candidates_.size(); ++i) keys_[i] = best - candidates_[i].logit;
  KeepMass(MassTarget(options_.top_p, total, /*beyond=*/false));
}

// Two steps instead of a sort: a histogram of the keys finds the bin where the mass is reached, and
// a selection inside that bin finds the exact last token. Bins rise with the key, so the result is
// that of a sort by (key, id).
void TokenSampler::KeepMass(uint64_t target) {
  constexpr size_t kBins = 512;
  constexpr double kBinsPerUnit = 16;
  const auto bin_of = [](double key) {
    return key < kBins / kBinsPerUnit ? static_cast<size_t>(key * kBinsPerUnit) : kBins - 1;
  };
  uint64_t mass[kBins] = {};
  for (size_t i = 0; i < candidates_.size(); ++i) mass[bin_of(keys_[i])] += weights_[i];
  size_t bin = 0;
  while (bin + 1 < kBins && target > mass[bin]) target -= mass[bin++];

  size_t count = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] > 0 && bin_of(keys_[i]) == bin) order_[count++] = static_cast<uint32_t>(i);
  }
  const uint32_t last = LastOfMass(count, target);
  size_t kept = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (bin_of(keys_[i]) <= bin && !Before(last, static_cast<uint32_t>(i))) {
      candidates_[kept++] = candidates_[i];
    }
  }
  candidates_.resize(kept);
}

// Quickselect by weight: of the first `count` candidates named in order_, the one at which the
// running weight (in the order of Before) reaches target.
uint32_t TokenSampler::LastOfMass(size_t count, uint64_t target) {
  size_t low = 0, high = count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (Before(order_[middle], order_[low])) std::swap(order_[middle], order_[low]);
    if (Before(order_[high - 1], order_[low])) std::swap(order_[high - 1], order_[low]);
    if (Before(order_[middle], order_[high - 1])) std::swap(order_[middle], order_[high - 1]);
    const uint32_t pivot = order_[high - 1];  // the median of the three
    size_t split = low;
    uint64_t better = 0;
    for (size_t i = low; i + 1 < high; ++i) {
      if (!Before(order_[i], pivot)) continue;
      better += weights_[order_[i]];
      std::swap(order_[i], order_[split++]);
    }
    std::swap(order_[split], order_[high - 1]);
    if (target <= better) {
      high = split;
    } else if (target <= better + weights_[pivot]) {
      return pivot;
    } else {
      target -= better + weights_[pivot];
      low = split + 1;
    }
  }
  return order_[low];
}

void TokenSampler::MinP() {
  if (options_.min_p < 1e-300) return;  // beyond what a float logit can tell apart
  const double least = MaxLogit() + DetLog(options_.min_p);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < least; });
}

TokenId TokenSampler::Draw(uint64_t position) {
  const uint64_t total = Weigh(options_.temperature);
  // High half of a 128-bit product: uniform in [0, total) without division or rejection; the bias
  // is below total / 2^64.
  const unsigned __int128 product =
      static_cast<unsigned __int128>(RandomAt(options_.seed, position)) * total;
  uint64_t at = static_cast<uint64_t>(product >> 64);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (at < weights_[i]) return candidates_[i].id;
    at -= weights_[i];
  }
  return candidates_.back().id;
}

}  // namespace sluice
