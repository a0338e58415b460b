// The public Sampler and Generate: thin adapters on Session and Tokenizer.
#include "sluice/generate.h"

#include "api/generate_parts.h"

namespace sluice {

struct Sampler::Impl {
  TokenSampler sampler;
};
Sampler::Sampler(const SamplingOptions& options, uint32_t vocab)
    : impl_(std::make_unique<Impl>(Impl{TokenSampler(options, vocab)})) {}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Result<TokenId> Sampler::Sample(std::span<const float> logits, std::span<const TokenId> history) {
  return impl_->sampler.Sample(logits, history);
}

Result<GenerateResult> Generate(Session* session, std::span<const TokenId> prompt,
                                const GenerateOptions& options) {
  GenerateParts parts(session->engine(), options);
  SessionSource source(session);
  const TokenId bos = parts.text ? parts.text->bos() : -1;
  session->Mark(session->length() + static_cast<uint32_t>(prompt.size()));
  Result<GenerateResult> result =
      GenerateFrom(&source, prompt, bos, &parts.generation, options.cancel);
  if (result.ok()) session->Keep(/*with_state=*/false);
  return result;
}

}  // namespace sluice
