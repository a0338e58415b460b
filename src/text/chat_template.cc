#include "text/chat_template.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#ifdef SLUICE_HAVE_RUST
#include "text/rust/include/sluice_text.h"
#endif

namespace sluice {

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

#ifdef SLUICE_HAVE_RUST

namespace {

sluice_text_slice Slice(std::string_view text) { return {text.data(), text.size()}; }

// A buffer of the crate, given back at the end of its life.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { sluice_text_buffer_free(raw_); }
  sluice_text_buffer* get() { return &raw_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(raw_.data), raw_.len}; }

 private:
  sluice_text_buffer raw_ = {};
};

// Takes the error's message over.
Status ToStatus(sluice_text_error& error) {
  Buffer message;
  *message.get() = error.message;
  std::string text = "chat template: " + std::string(message.view());
  const std::string where = error.line > 0 ? "line " + std::to_string(error.line) : "";
  switch (error.kind) {
    case SLUICE_TEMPLATE_INPUT:
      return {Code::kUsage, std::move(text), where, "correct the request"};
    case SLUICE_TEMPLATE_RAISED:
      return {Code::kFailed, std::move(text), where, "the template refuses this conversation"};
    case SLUICE_TEMPLATE_SYNTAX:
      return {Code::kFailed, std::move(text), where, "give another template or use --raw"};
    default:
      return {Code::kFailed, std::move(text), where, "the template does not fit this conversation"};
  }
}

// What a clock on the wall shows, as if it were UTC.
int64_t LocalCivilSeconds() {
  const auto now = std::chrono::system_clock::now();
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  struct tm civil = {};
  if (localtime_r(&seconds, &civil) == nullptr) return seconds;
  return timegm(&civil);
}

}  // namespace

struct ChatTemplate::Impl {
  explicit Impl(sluice_template* handle) : tmpl(handle) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { sluice_template_free(tmpl); }

  Status Render(const RenderRequest& request, Buffer* text, Buffer* runs) const {
    const sluice_template_request raw = {
        .messages = Slice(request.messages_json),
        .tools = Slice(request.tools_json),
        .variables = Slice(request.extra_json),
        .special_tokens = Slice(request.special_tokens_json),
        .add_generation_prompt = request.add_generation_prompt ? 1 : 0,
        .now = request.now_unix == -1 ? LocalCivilSeconds() : request.now_unix,
    };
    sluice_text_error error = {};
    sluice_text_buffer* cuts = runs == nullptr ? nullptr : runs->get();
    if (sluice_template_render(tmpl, &raw, text->get(), cuts, &error) != 0) return ToStatus(error);
    return {};
  }

  sluice_template* tmpl;
};

Result<ChatTemplate> ChatTemplate::Compile(const std::string& source) {
  sluice_template* handle = nullptr;
  sluice_text_error error = {};
  if (sluice_template_compile(Slice(source), &handle, &error) != 0) return ToStatus(error);
  ChatTemplate result;
  result.impl_ = std::make_unique<Impl>(handle);
  return result;
}

Result<std::string> ChatTemplate::Render(const RenderRequest& request) const {
  Buffer text;
  SLUICE_TRY(impl_->Render(request, &text, nullptr));
  return std::string(text.view());
}

Result<std::vector<ChatTemplate::OwnedPiece>> ChatTemplate::RenderPieces(
    const RenderRequest& request) const {
  Buffer text;
  Buffer runs;
  SLUICE_TRY(impl_->Render(request, &text, &runs));
  std::vector<OwnedPiece> pieces;
  std::string_view rest = text.view();
  PieceKind kind = PieceKind::kMarkup;
  for (size_t at = 0; at + sizeof(uint32_t) <= runs.view().size(); at += sizeof(uint32_t)) {
    uint32_t length = 0;
    std::memcpy(&length, runs.view().data() + at, sizeof(length));
    if (length > 0) pieces.push_back({kind, std::string(rest.substr(0, length))});
    rest.remove_prefix(length);
    kind = kind == PieceKind::kMarkup ? PieceKind::kText : PieceKind::kMarkup;
  }
  return pieces;
}

#else  // no crate: fast builds of other rooms

struct ChatTemplate::Impl {};

namespace {
Status NotBuilt() {
  return {Code::kFailed, "chat template: built without chat templates", "",
          "configure with -DSLUICE_RUST=ON"};
}
}  // namespace

Result<ChatTemplate> ChatTemplate::Compile(const std::string&) { return NotBuilt(); }
Result<std::string> ChatTemplate::Render(const RenderRequest&) const { return NotBuilt(); }
Result<std::vector<ChatTemplate::OwnedPiece>> ChatTemplate::RenderPieces(
    const RenderRequest&) const {
  return NotBuilt();
}

#endif

}  // namespace sluice
