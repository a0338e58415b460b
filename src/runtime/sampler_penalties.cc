#include "runtime/sampler_penalties.h"

#include <algorithm>
#include <cfloat>

namespace sluice {
namespace {

// Never makes an infinity of a finite logit, so a large penalty cannot look like a broken model.
float Clamp(double value) {
  return static_cast<float>(std::clamp(value, double{-FLT_MAX}, double{FLT_MAX}));
}

bool Known(TokenId id, std::span<const float> row) {
  return id >= 0 && static_cast<size_t>(id) < row.size();
}

// base^n for n >= 0, stopping where a float logit is beyond reach anyway.
double PowerOf(double base, uint32_t n) {
  double result = 1;
  while (n-- > 0 && result < FLT_MAX) result *= base;
  return std::min(result, double{FLT_MAX});
}

bool IsSingleBreaker(const SamplingOptions& options, TokenId id) {
  return std::find(options.dry_breakers.begin(), options.dry_breakers.end(), id) !=
         options.dry_breakers.end();
}

// Length of the longest breaker that starts at window[start] and lies inside the window; 0 if none.
size_t BreakerAt(const SamplingOptions& options, std::span<const TokenId> window, size_t start) {
  size_t longest = IsSingleBreaker(options, window[start]) ? 1 : 0;
  for (const std::vector<TokenId>& sequence : options.dry_breaker_sequences) {
    if (sequence.size() <= longest || sequence.size() > window.size() - start) continue;
    if (std::equal(sequence.begin(), sequence.end(), window.begin() + start)) {
      longest = sequence.size();
    }
  }
  return longest;
}

// Tokens after the last breaker: no repetition may reach across it.
size_t RepeatLimit(const SamplingOptions& options, std::span<const TokenId> window) {
  for (size_t back = 0; back < window.size(); ++back) {
    const size_t length = BreakerAt(options, window, window.size() - 1 - back);
    if (length > 0) return back + 1 - length;
  }
  return window.size();
}

// z[k] = how many tokens ending k before the last equal the tokens ending at the last: the
// Z-function of the reversed window.
void SuffixMatches(std::span<const TokenId> window, std::span<uint32_t> z) {
  const size_t n = window.size();
  const auto at = [&](size_t back) { return window[n - 1 - back]; };
  size_t left = 0, right = 0;  // the match [left, right) that reaches furthest
  z[0] = static_cast<uint32_t>(n);
  for (size_t k = 1; k < n; ++k) {
    size_t length = k < right ? std::min<size_t>(right - k, z[k - left]) : 0;
    while (k + length < n && at(length) == at(k + length)) ++length;
    z[k] = static_cast<uint32_t>(length);
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
}

}  // namespace

std::span<const TokenId> LastTokens(std::span<const TokenId> timeline, int last_n) {
  if (last_n < 0 || static_cast<size_t>(last_n) >= timeline.size()) return timeline;
  return timeline.last(static_cast<size_t>(last_n));
}

void ApplyPenalties(const SamplingOptions& options, std::span<const TokenId> timeline,
                    std::span<float> row, std::span<uint32_t> per_token) {
  const std::span<const TokenId> window = LastTokens(timeline, options.penalty_last_n);
  for (TokenId id : window) {
    if (Known(id, row)) ++per_token[id];
  }
  for (TokenId id : window) {
    if (!Known(id, row) || per_token[id] == 0) continue;
    double logit = row[id];
    logit = logit <= 0 ? logit * options.repeat_penalty : logit / options.repeat_penalty;
    logit -= per_token[id] * options.frequency_penalty + options.presence_penalty;
    if (row[id] >= -FLT_MAX) row[id] = Clamp(logit);  // a banned token stays banned
    per_token[id] = 0;
  }
}

void ApplyDry(const SamplingOptions& options, std::span<const TokenId> timeline,
              std::span<float> row, std::span<uint32_t> per_token, std::span<uint32_t> repeats) {
  const std::span<const TokenId> window = LastTokens(timeline, options.dry_last_n);
  const size_t allowed = static_cast<size_t>(options.dry_allowed_length);
  if (window.size() <= allowed) return;
  const size_t limit = RepeatLimit(options, window);
  if (limit < allowed) return;
  SuffixMatches(window, repeats);
  // The token k - 1 before the last once followed the match that ends k before it.
  for (size_t k = 1; k < window.size(); ++k) {
    const uint32_t length = static_cast<uint32_t>(std::min<size_t>(repeats[k], limit));
    const TokenId next = window[window.size() - k];
    if (length < allowed || !Known(next, row)) continue;
    per_token[next] = std::max(per_token[next], length + 1);  // + 1: zero means unseen
  }
  for (TokenId id : window) {
    if (!Known(id, row) || per_token[id] == 0) continue;
    const uint32_t length = per_token[id] - 1;
    per_token[id] = 0;
    if (IsSingleBreaker(options, id) || !(row[id] >= -FLT_MAX)) continue;
    const double penalty =
        options.dry_multiplier * PowerOf(options.dry_base, length - static_cast<uint32_t>(allowed));
    row[id] = Clamp(row[id] - penalty);
  }
}

}  // namespace sluice
