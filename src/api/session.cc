#include "sluice/session.h"

#include "api/engine_impl.h"

namespace sluice {

struct Session::Impl {
  Engine* engine = nullptr;
  std::unique_ptr<Sequence> sequence;
  std::vector<float> logits;  // [vocab] of the last token
  bool has_logits = false;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() { impl_->engine->impl().core->Return(std::move(impl_->sequence)); }

Result<std::unique_ptr<Session>> Session::Create(Engine* engine) {
  auto impl = std::make_unique<Impl>();
  impl->engine = engine;
  impl->sequence = engine->impl().core->NewSequence();
  impl->logits.resize(engine->vocab_size());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Engine& Session::engine() const { return *impl_->engine; }

Status Session::Append(std::span<const TokenId> ids, const LogitsFn& every_row,
                       const std::atomic<bool>* cancel) {
  if (ids.empty()) return {};
  StepLoop::Request request;
  request.sequence = impl_->sequence.get();
  request.ids = ids;
  request.every_row = every_row ? &every_row : nullptr;
  request.cancel = cancel;
  request.logits = impl_->logits;
  SLUICE_TRY(impl_->engine->impl().core->Step(request));
  impl_->has_logits = true;
  return {};
}

std::span<const float> Session::logits() const {
  return impl_->has_logits ? std::span<const float>(impl_->logits) : std::span<const float>();
}

uint32_t Session::length() const { return impl_->sequence->length(); }
uint32_t Session::capacity() const { return impl_->sequence->context(); }
const std::vector<TokenId>& Session::tokens() const { return impl_->sequence->tokens(); }

uint32_t Session::Rewind(uint32_t n) {
  if (n < impl_->sequence->length()) {
    impl_->engine->impl().core->Cut(impl_->sequence.get(), n);
    impl_->has_logits = false;
  }
  return impl_->sequence->length();
}

uint32_t Session::Align(std::span<const TokenId> ids) {
  impl_->has_logits = false;
  return impl_->engine->impl().core->Align(impl_->sequence.get(), ids);
}

void Session::Mark(uint32_t tokens) { impl_->sequence->Mark(tokens); }
void Session::Keep(bool with_state) {
  impl_->engine->impl().core->Keep(impl_->sequence.get(), with_state);
}

}  // namespace sluice
