// The public Chat: a conversation on a Session, kept in files.
#include <ctime>
#include <nlohmann/json.hpp>

#include "api/chat_core.h"
#include "api/engine_impl.h"
#include "api/generate_parts.h"
#include "api/session_file.h"
#include "api/session_format.h"
#include "io/atomic_file.h"
#include "sluice/generate.h"

namespace sluice {
namespace {

// A summary needs no thoughts: templates that know the switch leave them out.
RenderOptions WithoutThinking(RenderOptions options) {
  nlohmann::json variables = nlohmann::json::parse(
      options.extra_json.empty() ? "{}" : options.extra_json, nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) return options;
  variables["enable_thinking"] = false;
  options.extra_json = variables.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return options;
}

}  // namespace

struct Chat::Impl {
  Engine* engine;
  Session* session;
  RenderOptions render;
  ChatCore core;

  // The date of the conversation, once it matters.
  void FixClock() {
    if (render.now_unix < 0) render.now_unix = static_cast<int64_t>(std::time(nullptr));
  }
  using Run = std::function<Result<GenerateResult>(const ChatCall& call)>;
  Result<GenerateResult> Call(const GenerateOptions& options, const ChatCall::NoticeFn& notice,
                              const Run& run);
  Result<GenerateResult> Greedy(std::span<const TokenId> prompt, int64_t tokens_max,
                                const std::atomic<bool>* cancel);
};

Chat::Chat(Engine* engine, Session* session)
    : impl_(std::make_unique<Impl>(Impl{engine, session, {}, {}})) {}
Chat::~Chat() = default;
void Chat::SetSystem(const std::string& text) { impl_->core.SetSystem(text); }
void Chat::SetContextFull(ContextFull mode) { impl_->core.SetContextFull(mode); }
ContextFull Chat::context_full() const { return impl_->core.state().context_full; }
void Chat::SetTemplateOptions(const RenderOptions& options) { impl_->render = options; }
const RenderOptions& Chat::template_options() const { return impl_->render; }
void Chat::Clear() { impl_->core.Clear(); }
bool Chat::Undo() { return impl_->core.Undo(); }
uint32_t Chat::turns() const { return impl_->core.turns(); }
bool Chat::can_continue() const { return impl_->core.can_continue(); }
std::string Chat::HistoryJson() const { return impl_->core.HistoryJson(); }

Result<GenerateResult> Chat::Impl::Greedy(std::span<const TokenId> prompt, int64_t tokens_max,
                                          const std::atomic<bool>* cancel) {
  GenerateOptions options;
  options.sampling = SamplingOptions();
  options.sampling.temperature = 0;
  options.max_tokens = tokens_max;
  options.cancel = cancel;
  GenerateParts parts(*engine, options);
  SessionSource source(session);
  SLUICE_TRY(AlignTimeline(&source, prompt, cancel).status());
  SLUICE_TRY(parts.generation.Run(&source));
  return parts.generation.Finish();
}

Result<GenerateResult> Chat::Impl::Call(const GenerateOptions& options,
                                        const ChatCall::NoticeFn& notice, const Run& run) {
  const TextModel* text = engine->text();
  if (!text) {
    return Status(Code::kUsage, "a chat needs the tokenizer", "", "open the model with its text");
  }
  FixClock();
  GenerateParts parts(*engine, options);
  SessionSource source(session);
  const RenderOptions request = WithoutThinking(render);
  ChatCall call;
  call.render = [&](const std::string& messages) { return text->RenderIds(messages, render); };
  call.render_request = [&](const std::string& messages) {
    return text->RenderIds(messages, request);
  };
  call.source = &source;
  call.generation = &parts.generation;
  call.notice = notice;
  call.summarise = [&](std::span<const TokenId> prompt, int64_t tokens_max) {
    return Greedy(prompt, tokens_max, options.cancel);
  };
  MarkSystemPrompt(session, core.state().system, render);
  Result<GenerateResult> result = run(call);
  if (result.ok()) {
    session->Mark(session->length());
    session->Keep(/*with_state=*/true);
  }
  return result;
}

Result<GenerateResult> Chat::Ask(const std::string& user, const GenerateOptions& options,
                                 const std::function<void(std::string_view)>& notice) {
  return impl_->Call(options, notice,
                     [&](const ChatCall& call) { return impl_->core.Ask(user, call); });
}

Result<GenerateResult> Chat::Continue(const GenerateOptions& options,
                                      const std::function<void(std::string_view)>& notice) {
  return impl_->Call(options, notice,
                     [&](const ChatCall& call) { return impl_->core.Continue(call); });
}

Status Chat::Save(const std::string& path, const GenerateOptions& options) const {
  SLUICE_TRY(ValidateSampling(options.sampling, impl_->engine->vocab_size()));
  impl_->FixClock();
  SessionFile file;
  SLUICE_ASSIGN(file.identity, impl_->engine->impl().Identity());
  file.chat = impl_->core.state();
  file.render = impl_->render;
  file.generate = options;
  const std::vector<uint8_t> bytes = SerializeSession(file);
  if (bytes.size() > session_format::kFileBytesMax) {
    return Status(Code::kIo, "the conversation is larger than a session file may be", path,
                  "forget it with /clear");
  }
  SLUICE_TRY(ParseSession(bytes, path).status());  // what could not be read is not written
  return WriteFileAtomically(path, bytes, 0600);
}

Status Chat::Load(const std::string& path, GenerateOptions* options) {
  SLUICE_ASSIGN(const std::string text, ReadSmallFile(path, session_format::kFileBytesMax));
  const ByteSpan bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  SLUICE_ASSIGN(SessionFile file, ParseSession(bytes, path));
  SLUICE_ASSIGN(const ModelIdentity here, impl_->engine->impl().Identity());
  SLUICE_TRY(CheckIdentity(file.identity, here, path));
  impl_->core.Restore(std::move(file.chat));
  impl_->render = std::move(file.render);
  file.generate.on_text = std::move(options->on_text);
  file.generate.cancel = options->cancel;
  *options = std::move(file.generate);
  return {};
}

}  // namespace sluice
