// Generation on top of a session, and a chat with history.
//
// Contract: calls block; not thread-safe. Text is complete UTF-8 only: an incomplete tail is
// dropped. A failed call keeps what came before it: a Chat its history, a Session its timeline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/sampling.h"
#include "sluice/session.h"
#include "sluice/status.h"

namespace sluice {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;         // -1: until EOG or the context's end
  std::vector<std::string> stops;  // cut exactly, also across token boundaries
  bool ignore_eog = false;
  std::function<void(std::string_view)>
      on_text;  // streamed, complete UTF-8 only, stop text held back
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerateResult {
  std::string text;
  std::vector<TokenId> ids;    // without the EOG token
  std::string finish_reason;   // "stop", "length", "context", "cancelled"
  uint32_t reused_tokens = 0;  // prompt tokens that were already in the timeline (Chat)
  uint32_t dropped_turns = 0;  // old turns a Chat left out to make room
};

// Appends prompt (may be empty if the session has logits; else BOS is used, or kUsage when the
// model has none), then generates. kContextFull when the prompt does not fit. The last token is
// picked but not run through the model when max_tokens ends the call: to go on, pass it as the next
// prompt.
Result<GenerateResult> Generate(Session* session, std::span<const TokenId> prompt,
                                const GenerateOptions& options);

// Adds DRY sequence breakers given as text ("\n", ":"): every token that contains the text breaks a
// repetition, and so does a token that ends with its beginning when the tokens of the rest follow.
void AddDryBreakers(const TextModel& text, const std::vector<std::string>& breakers,
                    SamplingOptions* sampling);

enum class ContextFull { kStop, kDrop };

// A conversation: renders, finds the common prefix with the timeline, appends only what is new.
// With kDrop (the default) the oldest turns are left out whole when the context is full, the system
// text never; with kStop a full context is kContextFull, or finish_reason "context" in the middle
// of an answer.
class Chat {
 public:
  Chat(Engine* engine, Session* session);
  ~Chat();
  void SetSystem(const std::string& text);
  void SetContextFull(ContextFull mode);
  void SetTemplateOptions(const RenderOptions& options);
  // Adds the user's message, answers it, and keeps both. notice is called when old turns are
  // dropped.
  Result<GenerateResult> Ask(const std::string& user, const GenerateOptions& options,
                             const std::function<void(std::string_view)>& notice = {});
  void Clear();                     // forgets the turns, keeps the system text
  bool Undo();                      // removes the last exchange
  std::string HistoryJson() const;  // array of {"role", "content"}, the system text included
  uint32_t turns() const;           // exchanges in the history

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
