// Public face of the tokenizer and the chat template.
//
// Contract: TextModel is immutable and safe to share between threads (Render locks). It can be
// opened without weights: from a GGUF file or a folder that holds only tokenizer files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"
#include "sluice/types.h"

namespace sluice {

struct RenderOptions {
  std::string tools_json;  // JSON array or empty
  std::string extra_json;  // JSON object of template variables (enable_thinking, ...) or empty
  bool add_generation_prompt = true;
  int64_t now_unix = -1;  // civil time for strftime_now; -1: the clock
};

class TextModel {
 public:
  static Result<std::unique_ptr<TextModel>> Open(const std::string& model_path);
  ~TextModel();

  // Ids of one string. special: parse added tokens in it; add_bos: BOS if the model wants one,
  // never twice.
  std::vector<TokenId> Encode(std::string_view text, bool special, bool add_bos) const;
  std::string Decode(const std::vector<TokenId>& ids, bool special = true) const;

  bool has_chat_template() const;
  // The template's exact text. kFailed naming "chat template" and line when it is missing or
  // broken.
  Result<std::string> Render(const std::string& messages_json, const RenderOptions& options) const;
  // The same as ids: message text can never become a control token; exactly one BOS where the model
  // wants it.
  Result<std::vector<TokenId>> RenderIds(const std::string& messages_json,
                                         const RenderOptions& options) const;

  uint32_t vocab_size() const;
  TokenId bos() const;
  TokenId eos() const;
  const std::vector<TokenId>& eog() const;
  TokenId FindToken(std::string_view text) const;
  bool IsControl(TokenId id) const;
  uint64_t memory_bytes() const;

  struct Impl;
  explicit TextModel(std::unique_ptr<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// A template from a file, without a model (`sluice render --template`). special_json: {"bos_token":
// ...}.
Result<std::string> RenderTemplate(const std::string& template_source,
                                   const std::string& special_json,
                                   const std::string& messages_json, const RenderOptions& options);

}  // namespace sluice
