// A conversation apart from the engine: history, what still fits, and the timeline that is reused.
//
// Contract: Ask either answers and keeps both messages, or fails and leaves the history as it was.
// The timeline may have moved after a failure; the next Ask finds the common prefix again. The
// system text is never dropped. Old turns are dropped whole and for good. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/generate_core.h"

namespace sluice {

class ChatCore {
 public:
  // Renders a JSON array of messages, generation prompt included.
  using RenderFn = std::function<Result<std::vector<TokenId>>(const std::string& messages_json)>;
  using NoticeFn = std::function<void(std::string_view)>;

  void SetSystem(const std::string& text) { system_ = text; }
  void SetContextFull(ContextFull mode) { mode_ = mode; }
  void Clear() { turns_.clear(); }
  bool Undo();
  uint32_t turns() const { return static_cast<uint32_t>(turns_.size()); }
  std::string HistoryJson() const { return MessagesJson(0, nullptr); }

  // cancel is the generation's flag. A cancelled answer is kept as far as it came; if nothing was
  // said, the question is forgotten too.
  Result<GenerateResult> Ask(const std::string& user, const RenderFn& render, LogitsSource* source,
                             Generation* generation, const std::atomic<bool>* cancel,
                             const NoticeFn& notice);

 private:
  struct Turn {
    std::string user, answer;
  };
  // Where an Ask stands: how many old turns are left out, and the prompt without them.
  struct Fit {
    size_t dropped = 0;
    std::vector<TokenId> prompt;
  };

  std::string MessagesJson(size_t first, const std::string* user) const;
  Result<Fit> FitPrompt(const std::string& user, const RenderFn& render, uint32_t capacity) const;
  Result<Fit> DropMore(const Fit& now, const std::string& user, const RenderFn& render,
                       size_t answer_tokens, uint32_t capacity) const;

  std::string system_;
  std::vector<Turn> turns_;
  ContextFull mode_ = ContextFull::kDrop;
};

}  // namespace sluice
