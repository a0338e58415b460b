// The public Sampler, Generate and Chat: thin adapters on Session and Tokenizer.
#include "sluice/generate.h"

#include "api/chat_core.h"
#include "api/generate_core.h"
#include "api/text_model.h"
#include "text/tokenizer.h"

namespace sluice {
namespace {

class SessionSource final : public LogitsSource {
 public:
  explicit SessionSource(Session* session) : session_(session) {}
  Status Append(std::span<const TokenId> ids, const std::atomic<bool>* cancel) override {
    return session_->Append(ids, {}, cancel);
  }
  std::span<const float> logits() const override { return session_->logits(); }
  const std::vector<TokenId>& tokens() const override { return session_->tokens(); }
  uint32_t capacity() const override { return session_->capacity(); }
  uint32_t Rewind(uint32_t n) override { return session_->Rewind(n); }

 private:
  Session* session_;
};

class TokenizerStream final : public TextStream {
 public:
  explicit TokenizerStream(const Tokenizer* tokenizer) : decoder_(tokenizer) {}
  std::string Push(TokenId id) override { return decoder_.Push(id); }
  std::string Flush() override { return decoder_.Flush(); }

 private:
  StreamDecoder decoder_;
};

// What a generation needs from an engine; without text there is neither stream nor end token.
struct Parts {
  Parts(const Engine& engine, const GenerateOptions& options)
      : text(engine.text()),
        stream(text ? std::make_unique<TokenizerStream>(&text->impl().tokenizer()) : nullptr),
        generation(options, stream.get(),
                   text ? std::span<const TokenId>(text->eog()) : std::span<const TokenId>(),
                   engine.vocab_size()) {}
  const TextModel* text;
  std::unique_ptr<TokenizerStream> stream;
  Generation generation;
};

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
  Parts parts(session->engine(), options);
  SessionSource source(session);
  const TokenId bos = parts.text ? parts.text->bos() : -1;
  return GenerateFrom(&source, prompt, bos, &parts.generation, options.cancel);
}

struct Chat::Impl {
  Engine* engine;
  Session* session;
  RenderOptions render;
  ChatCore core;
};

Chat::Chat(Engine* engine, Session* session)
    : impl_(std::make_unique<Impl>(Impl{engine, session, {}, {}})) {}
Chat::~Chat() = default;
void Chat::SetSystem(const std::string& text) { impl_->core.SetSystem(text); }
void Chat::SetContextFull(ContextFull mode) { impl_->core.SetContextFull(mode); }
void Chat::SetTemplateOptions(const RenderOptions& options) { impl_->render = options; }
void Chat::Clear() { impl_->core.Clear(); }
bool Chat::Undo() { return impl_->core.Undo(); }
uint32_t Chat::turns() const { return impl_->core.turns(); }
std::string Chat::HistoryJson() const { return impl_->core.HistoryJson(); }

Result<GenerateResult> Chat::Ask(const std::string& user, const GenerateOptions& options,
                                 const std::function<void(std::string_view)>& notice) {
  const TextModel* text = impl_->engine->text();
  if (!text) {
    return Status(Code::kUsage, "a chat needs the tokenizer", "", "open the model with its text");
  }
  Parts parts(*impl_->engine, options);
  SessionSource source(impl_->session);
  const auto render = [&](const std::string& messages) {
    return text->RenderIds(messages, impl_->render);
  };
  return impl_->core.Ask(user, render, &source, &parts.generation, options.cancel, notice);
}

}  // namespace sluice
