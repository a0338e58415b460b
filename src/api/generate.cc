// The public Sampler and Generate: thin adapters on Session and Tokenizer.
#include "sluice/generate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/generate_parts.h"
#include "base/clock.h"

namespace sluice {

namespace {

constexpr double kKeepAfter_s = 5;

}  // namespace

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
  // All but the last token, whose logits the same prompt will need again.
  session->Mark(session->length() + static_cast<uint32_t>(std::max<size_t>(prompt.size(), 1)) - 1);
  // A long prompt is worth keeping before its answer is done: the process may be killed meanwhile.
  const double start_s = NowSeconds();
  bool kept = false;
  parts.generation.SetTick([&] {
    if (kept || NowSeconds() - start_s < kKeepAfter_s) return;
    session->Keep(/*with_state=*/false);
    kept = true;
  });
  Result<GenerateResult> result =
      GenerateFrom(&source, prompt, bos, &parts.generation, options.cancel);
  if (result.ok()) session->Keep(/*with_state=*/false);
  return result;
}

uint32_t SystemPromptTokens(const TextModel& text, const std::string& system,
                            const RenderOptions& render) {
  if (system.empty()) return 0;
  const auto ask = [&](const char* question) {
    const nlohmann::json messages = {{{"role", "system"}, {"content", system}},
                                     {{"role", "user"}, {"content", question}}};
    return text.RenderIds(messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                          render);
  };
  const Result<std::vector<TokenId>> one = ask("1"), other = ask("One?");
  if (!one.ok() || !other.ok()) return 0;  // the question itself will say why
  const auto differs = std::mismatch(one->begin(), one->end(), other->begin(), other->end()).first;
  return static_cast<uint32_t>(differs - one->begin());
}

void MarkSystemPrompt(Session* session, const std::string& system, const RenderOptions& render) {
  const TextModel* text = session->engine().text();
  if (text == nullptr || session->length() > 0) return;
  session->Mark(SystemPromptTokens(*text, system, render));
}

}  // namespace sluice
