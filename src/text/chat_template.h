// Chat templates: a Jinja template rendered exactly as transformers does it.
//
// Contract: a thin C++ face over the Rust crate minijinja (src/text/rust). Compile once, render many; not
// thread-safe per object. Errors are kFailed naming "chat template" and the line. Text that came from the
// user is marked so that the caller can keep it apart from markup when it is tokenised.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace sluice {

struct RenderRequest {
  std::string messages_json;           // array of {role, content, ...}
  std::string tools_json;              // array or empty
  std::string extra_json;              // object of more variables (enable_thinking, ...), or empty
  std::string special_tokens_json;     // object: bos_token, eos_token, ...
  bool add_generation_prompt = true;
  int64_t now_unix = -1;               // local civil time as seconds since 1970 for strftime_now; -1: the clock
};

class ChatTemplate {
 public:
  static Result<ChatTemplate> Compile(const std::string& source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::string> Render(const RenderRequest& request) const;

  // Like Render, but cut into markup and text: the strings of the messages (content, names, tool results,
  // ...) come back as kText pieces, everything the template itself wrote as kMarkup. Pieces own their text.
  struct OwnedPiece {
    PieceKind kind;
    std::string text;
  };
  Result<std::vector<OwnedPiece>> RenderPieces(const RenderRequest& request,
                                               const std::vector<std::string>& special_token_texts) const;

 private:
  ChatTemplate() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
