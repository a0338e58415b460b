// What Generate and Chat share: a Session and a Tokenizer behind the interfaces of generate_core.h.
//
// Contract: private to the api room; nothing is owned but the text stream and the generation.
#pragma once

#include <memory>

#include "api/generate_core.h"
#include "api/text_model.h"
#include "sluice/generate.h"
#include "text/tokenizer.h"

namespace sluice {

class SessionSource final : public LogitsSource {
 public:
  // mark: a length at which others will want to begin, if the text that is appended reaches it.
  explicit SessionSource(Session* session, uint32_t mark = 0) : session_(session), mark_(mark) {}
  Status Append(std::span<const TokenId> ids, const std::atomic<bool>* cancel) override {
    return session_->Append(ids, {}, cancel);
  }
  std::span<const float> logits() const override { return session_->logits(); }
  const std::vector<TokenId>& tokens() const override { return session_->tokens(); }
  uint32_t capacity() const override { return session_->capacity(); }
  uint32_t Rewind(uint32_t n) override { return session_->Rewind(n); }
  uint32_t Align(std::span<const TokenId> ids) override {
    const uint32_t kept = session_->Align(ids);
    session_->Mark(mark_);  // a cut forgets the marks behind it
    return kept;
  }

 private:
  Session* session_;
  uint32_t mark_;
};

// Where the first question makes a difference; 0 without a system text, or where the template
// refuses.
uint32_t SystemPromptTokens(const TextModel& text, const std::string& system,
                            const RenderOptions& render);

class TokenizerStream final : public TextStream {
 public:
  explicit TokenizerStream(const Tokenizer* tokenizer) : decoder_(tokenizer) {}
  std::string Push(TokenId id) override { return decoder_.Push(id); }
  std::string Flush() override { return decoder_.Flush(); }

 private:
  StreamDecoder decoder_;
};

// What a generation needs from an engine; without text there is neither stream nor end token.
struct GenerateParts {
  GenerateParts(const Engine& engine, const GenerateOptions& options)
      : text(engine.text()),
        stream(text ? std::make_unique<TokenizerStream>(&text->impl().tokenizer()) : nullptr),
        generation(options, stream.get(),
                   text ? std::span<const TokenId>(text->eog()) : std::span<const TokenId>(),
                   engine.vocab_size()) {}
  const TextModel* text;
  std::unique_ptr<TokenizerStream> stream;
  Generation generation;
};

}  // namespace sluice
