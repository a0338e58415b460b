#include "api/text_model.h"

#include <nlohmann/json.hpp>

#include "formats/gguf_tokenizer_check.h"
#include "runtime/tokenizer_load.h"

namespace sluice {
namespace {

// A special token's text by id; added to the template's variables under its usual name.
void AddSpecial(const Tokenizer& tokens, const char* name, TokenId id, nlohmann::json* json) {
  if (id < 0 || static_cast<uint32_t>(id) >= tokens.vocab_size()) return;
  std::string scratch;
  (*json)[name] = std::string(tokens.TokenText(id, /*special=*/true, &scratch));
}

nlohmann::json SpecialsOf(const Tokenizer& tokens) {
  nlohmann::json json = nlohmann::json::object();
  const SpecialTokens& s = tokens.special();
  AddSpecial(tokens, "bos_token", s.bos, &json);
  AddSpecial(tokens, "eos_token", s.eos, &json);
  AddSpecial(tokens, "unk_token", s.unk, &json);
  AddSpecial(tokens, "pad_token", s.pad, &json);
  return json;
}

// tokenizer_config.json spells special tokens as a string or as an object with "content".
void MergeConfigSpecials(const nlohmann::json& config, nlohmann::json* json) {
  if (!config.is_object()) return;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto it = config.find(name);
    if (it == config.end()) continue;
    if (it->is_string()) (*json)[name] = *it;
    if (it->is_object() && it->contains("content")) (*json)[name] = (*it)["content"];
  }
}

RenderRequest MakeRequest(const std::string& messages_json, const RenderOptions& options,
                          const std::string& special_json) {
  RenderRequest request;
  request.messages_json = messages_json;
  request.tools_json = options.tools_json;
  request.extra_json = options.extra_json;
  request.special_tokens_json = special_json;
  request.add_generation_prompt = options.add_generation_prompt;
  request.now_unix = options.now_unix;
  return request;
}

}  // namespace

Status TextModel::Impl::Compile() const {
  if (compiled) return {};
  if (template_source.empty()) {
    return Status(Code::kFailed, "the model has no chat template", "chat template",
                  "use --raw for plain completion");
  }
  SLUICE_ASSIGN(ChatTemplate made, ChatTemplate::Compile(template_source));
  compiled.emplace(std::move(made));
  return {};
}

Result<std::unique_ptr<TextModel>> MakeTextModel(const ModelSource& source) {
  auto impl = std::make_unique<TextModel::Impl>();
  nlohmann::json specials;
  if (source.gguf) {
    const GgufMetadata& metadata = source.gguf->header.metadata;
    const TensorInfo* embedding = source.gguf->catalog.Find("token_embd.weight");
    SLUICE_TRY(
        CheckTokenizerKeys(metadata, embedding == nullptr ? 0 : embedding->dims[1], source.name));
    SLUICE_ASSIGN(impl->tokens, TokenizerFromGguf(metadata));
    impl->template_source = std::string(metadata.String("tokenizer.chat_template").value_or(""));
    specials = SpecialsOf(*impl->tokens);
  } else {
    SLUICE_ASSIGN(impl->tokens, TokenizerFromFolder(source.path));
    impl->template_source = source.folder->chat_template;
    specials = SpecialsOf(*impl->tokens);
    MergeConfigSpecials(source.folder->tokenizer_config, &specials);
  }
  impl->special_json = specials.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return std::make_unique<TextModel>(std::move(impl));
}

TextModel::TextModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextModel::~TextModel() = default;

Result<std::unique_ptr<TextModel>> TextModel::Open(const std::string& model_path) {
  SLUICE_ASSIGN(const ModelSource source, OpenModelSource(model_path, /*need_weights=*/false));
  return MakeTextModel(source);
}

std::vector<TokenId> TextModel::Encode(std::string_view text, bool special, bool add_bos) const {
  return impl_->tokens->Encode(text, special, add_bos);
}

std::string TextModel::Decode(const std::vector<TokenId>& ids, bool special) const {
  return impl_->tokens->Decode(ids, special);
}

bool TextModel::has_chat_template() const { return !impl_->template_source.empty(); }

Result<std::string> TextModel::Render(const std::string& messages_json,
                                      const RenderOptions& options) const {
  std::lock_guard lock(impl_->mutex);
  SLUICE_TRY(impl_->Compile());
  return impl_->compiled->Render(MakeRequest(messages_json, options, impl_->special_json));
}

Result<std::vector<TokenId>> TextModel::RenderIds(const std::string& messages_json,
                                                  const RenderOptions& options) const {
  std::lock_guard lock(impl_->mutex);
  SLUICE_TRY(impl_->Compile());
  SLUICE_ASSIGN(
      const std::vector<ChatTemplate::OwnedPiece> owned,
      impl_->compiled->RenderPieces(MakeRequest(messages_json, options, impl_->special_json)));
  std::vector<TextPiece> pieces;
  pieces.reserve(owned.size());
  for (const ChatTemplate::OwnedPiece& piece : owned) pieces.push_back({piece.kind, piece.text});
  std::vector<TokenId> ids = impl_->tokens->Encode(pieces);
  const SpecialTokens& s = impl_->tokens->special();
  // Exactly one BOS: templates write it themselves or leave it to the tokenizer.
  if (s.add_bos && s.bos >= 0 && (ids.empty() || ids.front() != s.bos))
    ids.insert(ids.begin(), s.bos);
  return ids;
}

uint32_t TextModel::vocab_size() const { return impl_->tokens->vocab_size(); }
TokenId TextModel::bos() const { return impl_->tokens->special().bos; }
TokenId TextModel::eos() const { return impl_->tokens->special().eos; }
const std::vector<TokenId>& TextModel::eog() const { return impl_->tokens->special().eog; }
TokenId TextModel::FindToken(std::string_view text) const { return impl_->tokens->FindToken(text); }
bool TextModel::IsControl(TokenId id) const {
  return id >= 0 && static_cast<uint32_t>(id) < vocab_size() &&
         impl_->tokens->kind(id) == TokenKind::kControl;
}
uint64_t TextModel::memory_bytes() const { return impl_->tokens->memory_bytes(); }

Result<std::string> RenderTemplate(const std::string& template_source,
                                   const std::string& special_json,
                                   const std::string& messages_json, const RenderOptions& options) {
  SLUICE_ASSIGN(const ChatTemplate compiled, ChatTemplate::Compile(template_source));
  return compiled.Render(
      MakeRequest(messages_json, options, special_json.empty() ? "{}" : special_json));
}

}  // namespace sluice
