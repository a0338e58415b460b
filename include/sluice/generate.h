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
  std::vector<TokenId> ids;       // without the EOG token
  std::string finish_reason;      // "stop", "length", "context", "cancelled"
  uint32_t reused_tokens = 0;     // prompt tokens that were already in the timeline (Chat)
  uint32_t prompt_tokens = 0;     // the timeline before the answer (Chat)
  uint32_t dropped_turns = 0;     // old turns a Chat left out to make room
  uint32_t summarised_turns = 0;  // old turns a Chat replaced by a summary
};

// Appends prompt (may be empty if the session has logits; else BOS is used, or kUsage when the
// model has none), then generates. kContextFull when the prompt does not fit. The last token is
// picked but not run through the model when max_tokens ends the call: to go on, pass it as the next
// prompt.
Result<GenerateResult> Generate(Session* session, std::span<const TokenId> prompt,
                                const GenerateOptions& options);

// Conversations with one system prompt begin alike: marks where the first question makes a
// difference (asked of the template itself, with two questions), so that the next one begins there.
// Does nothing when the timeline has begun or the template refuses.
void MarkSystemPrompt(Session* session, const std::string& system, const RenderOptions& render);

// Adds DRY sequence breakers given as text ("\n", ":"): every token that contains the text breaks a
// repetition, and so does a token that ends with its beginning when the tokens of the rest follow.
void AddDryBreakers(const TextModel& text, const std::vector<std::string>& breakers,
                    SamplingOptions* sampling);

enum class ContextFull { kStop, kDrop, kSummarise };

// What a session file says of itself.
struct SessionInfo {
  std::string model, architecture;  // names, for people
  uint32_t vocab = 0, turns = 0;
  bool cut = false;  // the last answer was: Continue goes on with it
};

// A conversation: renders, finds the common prefix with the timeline, appends only what is new.
// When the context is full: with kStop it is kContextFull, or finish_reason "context" in the middle
// of an answer. With kDrop (the default) the oldest turns are left out whole, the system text
// never. With kSummarise the model sums up the oldest turns first (greedy, bounded, the last two
// turns stay as they are) and the summary takes their place in the system message; where that fails
// or does not make room, turns are dropped. docs/cli.md has the rules.
class Chat {
 public:
  Chat(Engine* engine, Session* session);
  ~Chat();
  void SetSystem(const std::string& text);
  void SetContextFull(ContextFull mode);
  ContextFull context_full() const;
  // A clock left to the template (now_unix -1) is read once: one conversation has one date, so that
  // its beginning stays the same text.
  void SetTemplateOptions(const RenderOptions& options);
  const RenderOptions& template_options() const;
  // Adds the user's message, answers it, and keeps both. notice is called when old turns are
  // dropped or summarised.
  Result<GenerateResult> Ask(const std::string& user, const GenerateOptions& options,
                             const std::function<void(std::string_view)>& notice = {});
  // Goes on with the last answer where it was cut ("cancelled", "length" or "context"), token for
  // token as if it never had been. The result is the whole answer; on_text gets the new part.
  // kUsage when it was not cut.
  Result<GenerateResult> Continue(const GenerateOptions& options,
                                  const std::function<void(std::string_view)>& notice = {});
  bool can_continue() const;
  void Clear();  // forgets the turns and their summary, keeps the system text
  bool Undo();   // removes the last exchange
  std::string HistoryJson()
      const;               // array of {"role", "content"}, system text and summary included
  uint32_t turns() const;  // exchanges in the history

  // Writes all that a later process needs to go on exactly: texts, token ids, options, seed, and
  // which model it was; no tensors (docs/session-file.md). The file is the old one or the new one,
  // mode 0600. options: those of the next Ask; on_text and cancel are not kept.
  Status Save(const std::string& path, const GenerateOptions& options) const;
  // Takes the file's conversation in place of this one, and its options but for on_text and cancel.
  // On any error nothing changes: kIo for a file that cannot be read, is damaged, cut, foreign or
  // from a newer version; kUsage when it belongs to another model or vocabulary.
  Status Load(const std::string& path, GenerateOptions* options);
  // While an answer is on its way, it is saved there every `seconds` as one that was cut, and what
  // was computed goes to the prefix store, so that a process that is killed loses no more than
  // that.
  // "": not. A save that fails is one notice.
  void SetAutosave(const std::string& path, double seconds);
  // Everything that Load checks but the model, which need not be loaded. Errors as Load.
  static Result<SessionInfo> Inspect(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
