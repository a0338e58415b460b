#include "formats/gguf_tokenizer_check.h"

#include <fmt/format.h>

#include <string_view>

#include "base/log.h"
#include "formats/printable.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr const char* kHint = "convert the model again with its tokenizer";

Status Bad(std::string what, const std::string& name) {
  return Status(Code::kBadModel, std::move(what), name, kHint);
}

bool IsInteger(GgufValueType type) {
  switch (type) {
    case GgufValueType::kF32:
    case GgufValueType::kF64:
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return false;
    default:
      return true;
  }
}
bool IsArrayOf(const GgufValue& value, GgufValueType element) {
  return value.type == GgufValueType::kArray && value.element == element;
}

// Lists that run beside the token list must have its length.
Status CheckSideList(const GgufMetadata& metadata, const char* key, uint64_t tokens,
                     const std::string& name) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return Status();
  const bool numbers = value->type == GgufValueType::kArray &&
                       (IsInteger(value->element) || value->element == GgufValueType::kF32);
  if (!numbers) return Bad(fmt::format("{} is not a list of numbers", key), name);
  if (value->count == tokens) return Status();
  return Bad(
      fmt::format("{} has {} entries, tokenizer.ggml.tokens has {}", key, value->count, tokens),
      name);
}

// A token id that indexes nothing: loads, but is never used.
void WarnSpecialIds(const GgufMetadata& metadata, uint64_t tokens, const std::string& name) {
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with(kPrefix) || !key.ends_with("_token_id")) continue;
    const std::optional<uint64_t> id = value.AsU64();
    if (id && *id < tokens) continue;
    Log(LogLevel::kWarning,
        fmt::format("{}: {} is outside the vocabulary of {} tokens and is ignored", name,
                    Printable(key), tokens));
  }
}

}  // namespace

Status CheckTokenizerKeys(const GgufMetadata& metadata, uint64_t vocab_rows,
                          const std::string& name) {
  const GgufValue* model_value = metadata.Find("tokenizer.ggml.model");
  const GgufValue* tokens = metadata.Find("tokenizer.ggml.tokens");
  if (model_value == nullptr && tokens == nullptr) return Status();
  if (model_value == nullptr) {
    return Bad("tokenizer.ggml.model is missing beside tokenizer.ggml.tokens", name);
  }
  const std::optional<std::string_view> model = model_value->AsString();
  if (!model) return Bad("tokenizer.ggml.model is not a string", name);
  if (*model == "none" || *model == "no_vocab") return Status();

  if (tokens == nullptr) return Bad("tokenizer.ggml.tokens is missing: no vocabulary", name);
  if (!IsArrayOf(*tokens, GgufValueType::kString)) {
    return Bad("tokenizer.ggml.tokens is not a list of strings", name);
  }
  if (tokens->count != vocab_rows) {
    return Bad(fmt::format("vocabulary mismatch: tokenizer.ggml.tokens has {} entries, "
                           "token_embd.weight has {} rows",
                           tokens->count, vocab_rows),
               name);
  }
  SLUICE_TRY(CheckSideList(metadata, "tokenizer.ggml.token_type", tokens->count, name));
  SLUICE_TRY(CheckSideList(metadata, "tokenizer.ggml.scores", tokens->count, name));
  const GgufValue* merges = metadata.Find("tokenizer.ggml.merges");
  if (*model == "gpt2" && merges == nullptr) {
    return Bad("tokenizer.ggml.merges is missing: byte-level BPE needs its merges", name);
  }
  if (merges != nullptr && !IsArrayOf(*merges, GgufValueType::kString)) {
    return Bad("tokenizer.ggml.merges is not a list of strings", name);
  }
  if (*model == "llama" && merges == nullptr && metadata.Find("tokenizer.ggml.scores") == nullptr) {
    return Bad("tokenizer.ggml.scores is missing: SentencePiece needs its scores", name);
  }
  WarnSpecialIds(metadata, tokens->count, name);
  return Status();
}

}  // namespace sluice
