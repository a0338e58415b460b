// Chat templates: a Jinja template rendered exactly as transformers does it.
//
// Contract: a thin C++ face over the Rust crate in src/text/rust (minijinja behind a C ABI).
// Compile once, render many; an object is used by one thread at a time. Errors are kFailed with
// "chat template" in the text and the line as place; a malformed request (messages that are no
// JSON, a tool call whose arguments are no JSON object) is kUsage and names the part. A template's
// own raise_exception text is the error's text, so a server can show it. Rendering is bounded in
// steps, memory and depth: a hostile template ends in an error. Text that came from the
// conversation is marked so that the caller can keep it apart from markup when it is tokenised.
// docs/chat-templates.md has the details.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace sluice {

struct RenderRequest {
  std::string messages_json;        // array of {role, content, ...}
  std::string tools_json;           // array or empty
  std::string extra_json;           // object of more variables (enable_thinking, ...), or empty
  std::string special_tokens_json;  // object: bos_token, eos_token, ...
  bool add_generation_prompt = true;
  int64_t now_unix = -1;  // local civil time as seconds since 1970 for strftime_now; -1: the clock
};

class ChatTemplate {
 public:
  static Result<ChatTemplate> Compile(const std::string& source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::string> Render(const RenderRequest& request) const;

  // Like Render, but cut into markup and text: characters of the request's strings (contents,
  // names, tool descriptions, tool results, variables, ...) come back as kText pieces, everything
  // the template wrote as kMarkup; kinds alternate and no piece is empty. The texts joined equal
  // Render's result. Well-known role names and plain identifiers used as JSON keys count as markup,
  // because templates build control tokens around the role (`<|` + role + `|>`). A token boundary
  // is not implied between pieces: a tokenizer must merge across them and only refuse to find a
  // control token that touches a kText piece.
  struct OwnedPiece {
    PieceKind kind;
    std::string text;
  };
  Result<std::vector<OwnedPiece>> RenderPieces(const RenderRequest& request) const;

 private:
  ChatTemplate() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
