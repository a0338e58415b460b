// The public Chat: a conversation on a Session, kept in files.
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/chat_core.h"
#include "api/chat_ids.h"
#include "api/engine_impl.h"
#include "api/generate_parts.h"
#include "api/session_file.h"
#include "api/session_format.h"
#include "base/clock.h"
#include "io/atomic_file.h"
#include "sluice/generate.h"

namespace sluice {
namespace {

// Tokens of an answer after which the recurrent state is worth a checkpoint of its own.
constexpr uint32_t kStateEveryTokens = 1024;

// A summary needs no thoughts: templates that know the switch leave them out.
RenderOptions WithoutThinking(RenderOptions options) {
  nlohmann::json variables = nlohmann::json::parse(
      options.extra_json.empty() ? "{}" : options.extra_json, nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) return options;
  variables["enable_thinking"] = false;
  options.extra_json = variables.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return options;
}

Result<SessionFile> ReadSession(const std::string& path) {
  SLUICE_ASSIGN(const std::string text, ReadSmallFile(path, session_format::kFileBytesMax));
  return ParseSession({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, path);
}

}  // namespace

struct Chat::Impl {
  Engine* engine = nullptr;
  Session* session = nullptr;
  RenderOptions render;
  ChatCore core;
  std::string autosave_path;
  double autosave_s = 0;
  bool autosaved = false;  // the file holds an answer on its way
  bool file_is_new = false;
  std::optional<std::string> file_before;  // its bytes before that, if there were any to be read
  std::string marked_text;                 // what `mark` was computed for
  uint32_t mark = 0;

  // The date of the conversation, once it matters.
  void FixClock() {
    if (render.now_unix < 0) render.now_unix = static_cast<int64_t>(std::time(nullptr));
  }
  using Run = std::function<Result<GenerateResult>(const ChatCall& call)>;
  Result<GenerateResult> Call(const GenerateOptions& options, const ChatCall::NoticeFn& notice,
                              const Run& run);
  Result<GenerateResult> Greedy(std::span<const TokenId> prompt, int64_t tokens_max,
                                const std::atomic<bool>* cancel);
  uint32_t SystemMark(const TextModel& text);
  ChatCall::TickFn Autosave(const GenerateOptions& options, const ChatCall::NoticeFn& notice);
  Status Store(const std::string& path, ChatState state, const GenerateOptions& options);
  void RememberFile();
  void RestoreFile(const ChatCall::NoticeFn& notice);
};

Chat::Chat(Engine* engine, Session* session) : impl_(std::make_unique<Impl>()) {
  impl_->engine = engine;
  impl_->session = session;
}
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
  SessionSource source(session, SystemMark(*text));
  const RenderOptions request = WithoutThinking(render);
  ChatCall call;
  call.render = [&](const std::string& messages) -> Result<std::vector<TokenId>> {
    SLUICE_ASSIGN(std::vector<TokenId> ids, text->RenderIds(messages, render));
    return KeepKnownIds(text->impl().tokenizer(), core.state().timeline, std::move(ids));
  };
  call.render_request = [&](const std::string& messages) {
    return text->RenderIds(messages, request);
  };
  call.source = &source;
  call.generation = &parts.generation;
  call.notice = notice;
  call.summarise = [&](std::span<const TokenId> prompt, int64_t tokens_max) {
    return Greedy(prompt, tokens_max, options.cancel);
  };
  call.tick = Autosave(options, notice);
  autosaved = false;
  Result<GenerateResult> result = run(call);
  if (!result.ok()) {
    RestoreFile(notice);
    return result;
  }
  session->Mark(session->length());
  session->Keep(/*with_state=*/true);
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

uint32_t Chat::Impl::SystemMark(const TextModel& text) {
  const std::string key = core.state().system + '\0' + render.extra_json + '\0' + render.tools_json;
  if (key != marked_text) mark = SystemPromptTokens(text, core.state().system, render);
  marked_text = key;
  return mark;
}

// Counted from the question on: after a prompt that took minutes the first token is worth saving.
ChatCall::TickFn Chat::Impl::Autosave(const GenerateOptions& options,
                                      const ChatCall::NoticeFn& notice) {
  if (autosave_path.empty()) return {};
  struct Kept {
    double saved_s;
    uint32_t state_at;
    bool failed = false;
  };
  return [this, options, notice,
          p = Kept{NowSeconds(), 0}](const std::function<ChatState()>& state) mutable {
    if (NowSeconds() - p.saved_s < autosave_s) return;
    RememberFile();
    const Status status = Store(autosave_path, state(), options);
    autosaved = autosaved || status.ok();
    if (!status.ok() && !p.failed && notice)
      notice("the answer so far is not saved: " + status.ToString());
    p.failed = !status.ok();
    if (p.state_at == 0) p.state_at = session->length();
    const bool with_state = session->length() - p.state_at >= kStateEveryTokens;
    session->Keep(with_state);
    if (with_state) p.state_at = session->length();
    p.saved_s = NowSeconds();  // a slow disk must not get all of the time
  };
}

// What the file was before the answer that is being saved on its way: a session file is small.
void Chat::Impl::RememberFile() {
  if (autosaved) return;
  file_is_new = access(autosave_path.c_str(), F_OK) != 0 && errno == ENOENT;
  file_before.reset();
  if (file_is_new) return;
  Result<std::string> bytes = ReadSmallFile(autosave_path, session_format::kFileBytesMax);
  if (bytes.ok()) file_before = std::move(*bytes);
}

// After an error the conversation is as before, and so is its file.
void Chat::Impl::RestoreFile(const ChatCall::NoticeFn& notice) {
  if (!autosaved) return;
  Status status(Code::kIo, "it could not be read before", autosave_path);
  if (file_before) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(file_before->data());
    status = WriteFileAtomically(autosave_path, {bytes, file_before->size()}, 0600);
  } else if (file_is_new) {
    status = unlink(autosave_path.c_str()) == 0 || errno == ENOENT
                 ? Status()
                 : Status(Code::kIo, "cannot delete it", autosave_path);
  }
  if (!status.ok() && notice)
    notice("the session file keeps the answer as far as it came: " + status.ToString());
}

void Chat::SetAutosave(const std::string& path, double seconds) {
  impl_->autosave_path = path;
  impl_->autosave_s = seconds;
}

Status Chat::Save(const std::string& path, const GenerateOptions& options) const {
  return impl_->Store(path, impl_->core.state(), options);
}

Status Chat::Impl::Store(const std::string& path, ChatState state, const GenerateOptions& options) {
  SLUICE_TRY(ValidateSampling(options.sampling, engine->vocab_size()));
  FixClock();
  SessionFile file;
  SLUICE_ASSIGN(file.identity, engine->impl().Identity());
  file.chat = std::move(state);
  file.render = render;
  file.generate = options;
  const std::vector<uint8_t> bytes = SerializeSession(file);
  if (bytes.size() > session_format::kFileBytesMax) {
    return Status(Code::kIo, "the conversation is larger than a session file may be", path,
                  "forget it with /clear");
  }
  SLUICE_TRY(ParseSession(bytes, path).status());  // what could not be read is not written
  return WriteFileAtomically(path, bytes, 0600);
}

Result<SessionInfo> Chat::Inspect(const std::string& path) {
  SLUICE_ASSIGN(const SessionFile file, ReadSession(path));
  SessionInfo info;
  info.model = file.identity.name;
  info.architecture = file.identity.architecture;
  info.vocab = file.identity.vocab;
  info.turns = static_cast<uint32_t>(file.chat.turns.size());
  info.cut = file.chat.cut;
  return info;
}

Status Chat::Load(const std::string& path, GenerateOptions* options) {
  SLUICE_ASSIGN(SessionFile file, ReadSession(path));
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
