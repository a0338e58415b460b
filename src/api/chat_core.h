// A conversation apart from the engine: history, what still fits, and the timeline that is reused.
//
// Contract: Ask either answers and keeps both messages, or fails and leaves the history as it was.
// The timeline may have moved after a failure; the next call finds the common prefix again. The
// system text is never dropped. Old turns are left out whole and for good; a summary of them, if
// the mode asks for one, stands in the system message until the next one replaces it. All that
// matters is in ChatState: restoring one and going on gives the tokens that the first conversation
// would have gone on with. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/generate_core.h"

namespace sluice {

struct ChatTurn {
  std::string user, answer;
};

struct ChatState {
  std::string system;
  std::string summary;  // of turns that are no longer here
  std::vector<ChatTurn> turns;
  ContextFull context_full = ContextFull::kDrop;
  // Prompt and answer of the last turn as token ids; after Undo, of the turn that was taken back.
  std::vector<TokenId> timeline;
  uint32_t answer_at = 0;  // where the answer begins in it
  bool cut = false;        // the last answer ended before the model ended it
};

// What one call works with; nothing is owned.
struct ChatCall {
  // Renders a JSON array of messages, generation prompt included.
  using RenderFn = std::function<Result<std::vector<TokenId>>(const std::string& messages_json)>;
  using NoticeFn = std::function<void(std::string_view)>;
  // A greedy answer of at most tokens_max tokens, generated on the same timeline.
  using SummariseFn =
      std::function<Result<GenerateResult>(std::span<const TokenId> prompt, int64_t tokens_max)>;

  // Called after each token of the answer; state() is the conversation as if it ended there, cut.
  using TickFn = std::function<void(const std::function<ChatState()>& state)>;

  RenderFn render;
  RenderFn render_request;  // for the request of a summary; empty: as render
  LogitsSource* source = nullptr;
  Generation* generation = nullptr;
  NoticeFn notice;
  SummariseFn summarise;  // empty: turns are dropped instead
  TickFn tick;            // may be empty
};

class ChatCore {
 public:
  void SetSystem(const std::string& text) { state_.system = text; }
  void SetContextFull(ContextFull mode) { state_.context_full = mode; }
  void Clear();
  bool Undo();
  uint32_t turns() const { return static_cast<uint32_t>(state_.turns.size()); }
  bool can_continue() const { return state_.cut && !state_.turns.empty(); }
  std::string HistoryJson() const;

  // A cancelled answer is kept as far as it came; if nothing was said, the question is forgotten
  // too.
  Result<GenerateResult> Ask(const std::string& user, const ChatCall& call);
  // Goes on with an answer that was cut.
  Result<GenerateResult> Continue(const ChatCall& call);

  const ChatState& state() const { return state_; }
  void Restore(ChatState state) { state_ = std::move(state); }

 private:
  // Where an Ask stands: how many of the oldest turns are left out (lost, or told by the summary),
  // and the prompt without them.
  struct Fit {
    size_t dropped = 0, summarised = 0;
    std::string summary;
    std::string trouble;  // why there is no summary, or no use in it
    std::vector<TokenId> prompt;
    size_t first() const { return dropped + summarised; }
  };

  static void Announce(const Fit& before, const Fit& after, const ChatCall& call);
  std::string MessagesJson(const std::string& summary, size_t first, size_t end,
                           const std::string* user) const;
  const char* Alone() const;  // who needs all the room when no turn is left to drop
  Status Render(const std::string& user, const ChatCall& call, Fit* fit) const;
  Result<Fit> FitPrompt(const std::string& user, const ChatCall& call) const;
  Status FitResumed(const std::string& user, size_t answer_tokens, const ChatCall& call,
                    Fit* fit) const;
  Result<Fit> MakeRoom(const Fit& now, const std::string& user, size_t answer_tokens,
                       const ChatCall& call) const;
  Result<Fit> DropMore(const Fit& now, const std::string& user, size_t answer_tokens,
                       const ChatCall& call) const;
  Result<Fit> Summarise(const Fit& now, const std::string& user, size_t answer_tokens,
                        const ChatCall& call) const;
  Result<size_t> ChooseTurns(const Fit& now, const std::string& user, size_t tokens,
                             const ChatCall& call) const;
  Result<GenerateResult> Answer(const std::string& user, Fit fit, const ChatCall& call);
  // The state with one more turn, the last.
  ChatState With(const std::string& user, const Fit& fit, const std::string& answer,
                 const std::vector<TokenId>& ids, bool cut) const;

  ChatState state_;
};

}  // namespace sluice
