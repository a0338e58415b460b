// DRY sequence breakers: from text to the tokens the sampler compares.
#include <string_view>

#include "sluice/generate.h"

namespace sluice {

void AddDryBreakers(const TextModel& text, const std::vector<std::string>& breakers,
                    SamplingOptions* sampling) {
  std::vector<TokenId> one(1);
  for (uint32_t id = 0; id < text.vocab_size(); ++id) {
    one[0] = static_cast<TokenId>(id);
    const std::string token = text.Decode(one, /*special=*/true);
    for (const std::string& breaker : breakers) {
      if (breaker.empty()) continue;
      if (token.find(breaker) != std::string::npos) {
        sampling->dry_breakers.push_back(one[0]);
        break;
      }
      for (size_t n = 1; n < breaker.size(); ++n) {
        if (!std::string_view(token).ends_with(std::string_view(breaker).substr(0, n))) continue;
        std::vector<TokenId> sequence = text.Encode(breaker.substr(n), false, false);
        sequence.insert(sequence.begin(), one[0]);
        if (sequence.size() > 1) sampling->dry_breaker_sequences.push_back(std::move(sequence));
      }
    }
  }
}

}  // namespace sluice
