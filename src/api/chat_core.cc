#include "api/chat_core.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

// When turns are left out, enough of them are to have a quarter of the context free: each time runs
// the remaining conversation through the model again, so it must not happen at every token.
uint32_t RoomyLimit(uint32_t capacity) { return capacity - capacity / 4; }

Status TooLong(size_t tokens, uint32_t capacity, const char* what) {
  return Status(Code::kContextFull,
                fmt::format("{} {} tokens, with room for an answer, and the context holds {}", what,
                            tokens + 1, capacity),
                "", "shorten it, start anew, or enlarge the context (--ctx)");
}

std::string OldestTurns(size_t turns) {
  return turns == 1 ? std::string("the oldest turn was")
                    : fmt::format("the {} oldest turns were", turns);
}

bool WasCut(const std::string& finish_reason) { return finish_reason != "stop"; }

}  // namespace

void ChatCore::Announce(const Fit& before, const Fit& after, const ChatCall& call) {
  if (!call.notice) return;
  const auto say = [&](const std::string& what) { call.notice("the context is full: " + what); };
  if (after.summarised > before.summarised) {
    say(OldestTurns(after.summarised - before.summarised) + " replaced by a summary");
  }
  if (after.dropped == before.dropped) return;
  const std::string why =
      after.trouble.empty() ? "" : fmt::format("a summary did not help ({}), ", after.trouble);
  say(why + OldestTurns(after.dropped - before.dropped) + " dropped");
}

std::string ChatCore::MessagesJson(const std::string& summary, size_t first, size_t end,
                                   const std::string* user) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  std::string system = state_.system;
  if (!summary.empty()) {
    if (!system.empty()) system += "\n\n";
    system += "[Summary of the earlier conversation]\n" + summary;
  }
  if (!system.empty()) add("system", system);
  for (size_t i = first; i < end; ++i) {
    add("user", state_.turns[i].user);
    add("assistant", state_.turns[i].answer);
  }
  if (user) add("user", *user);
  return messages.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ChatCore::HistoryJson() const {
  return MessagesJson(state_.summary, 0, state_.turns.size(), nullptr);
}

void ChatCore::Clear() {
  state_.turns.clear();
  state_.summary.clear();
  state_.timeline.clear();
  state_.answer_at = 0;
  state_.cut = false;
}

bool ChatCore::Undo() {
  if (state_.turns.empty()) return false;
  state_.turns.pop_back();
  state_.answer_at = 0;  // the timeline stays: it says how the turns before were spelled
  state_.cut = false;
  return true;
}

Status ChatCore::Render(const std::string& user, const ChatCall& call, Fit* fit) const {
  SLUICE_ASSIGN(fit->prompt,
                call.render(MessagesJson(fit->summary, fit->first(), state_.turns.size(), &user)));
  return {};
}

const char* ChatCore::Alone() const {
  return state_.system.empty() ? "this message alone needs"
                               : "the system text and this message alone need";
}

Result<ChatCore::Fit> ChatCore::FitPrompt(const std::string& user, const ChatCall& call) const {
  const uint32_t capacity = call.source->capacity();
  Fit fit;
  fit.summary = state_.summary;
  SLUICE_TRY(Render(user, call, &fit));
  if (fit.prompt.size() < capacity) return fit;
  const bool alone = state_.turns.empty() && fit.summary.empty();
  if (state_.context_full == ContextFull::kStop || alone) {
    return TooLong(fit.prompt.size(), capacity, alone ? Alone() : "the conversation needs");
  }
  SLUICE_ASSIGN(fit, MakeRoom(fit, user, 0, call));
  if (fit.prompt.size() >= capacity) return TooLong(fit.prompt.size(), capacity, Alone());
  return fit;
}

Result<ChatCore::Fit> ChatCore::MakeRoom(const Fit& now, const std::string& user,
                                         size_t answer_tokens, const ChatCall& call) const {
  Fit fit = now;
  if (state_.context_full == ContextFull::kSummarise && call.summarise) {
    SLUICE_ASSIGN(fit, Summarise(now, user, answer_tokens, call));
    if (fit.trouble.empty()) {
      if (fit.prompt.size() + answer_tokens < call.source->capacity()) return fit;
      fit.trouble = "it does not make room";
    }
  }
  return DropMore(fit, user, answer_tokens, call);
}

Result<ChatCore::Fit> ChatCore::DropMore(const Fit& now, const std::string& user,
                                         size_t answer_tokens, const ChatCall& call) const {
  const uint32_t capacity = call.source->capacity();
  Fit fit = now;
  while (fit.first() < state_.turns.size()) {
    ++fit.dropped;
    SLUICE_TRY(Render(user, call, &fit));
    if (fit.prompt.size() + answer_tokens <= RoomyLimit(capacity)) break;
  }
  if (fit.prompt.size() + answer_tokens >= capacity && !fit.summary.empty()) {
    fit.summary.clear();  // better the message without its past than no answer
    SLUICE_TRY(Render(user, call, &fit));
  }
  return fit;
}

Result<GenerateResult> ChatCore::Ask(const std::string& user, const ChatCall& call) {
  SLUICE_TRY(call.generation->Validate());
  Result<Fit> fit = FitPrompt(user, call);
  if (!fit.ok()) {
    if (!call.generation->cancelled()) return fit.status();
    call.generation->MarkCancelled();
    return call.generation->Finish();
  }
  Announce({}, *fit, call);
  return Answer(user, std::move(*fit), call);
}

Result<GenerateResult> ChatCore::Continue(const ChatCall& call) {
  if (!can_continue()) {
    return Status(Code::kUsage, "the last answer was not cut", "", "ask something new");
  }
  SLUICE_TRY(call.generation->Validate());
  const ChatState before = state_;
  const ChatTurn turn = std::move(state_.turns.back());
  state_.turns.pop_back();
  const auto answer = before.timeline.begin() + before.answer_at;
  Fit fit;
  fit.summary = before.summary;
  fit.prompt.assign(before.timeline.begin(), answer);
  call.generation->Resume({answer, before.timeline.end()}, turn.answer.size());
  const Status room = FitResumed(turn.user, before.timeline.size() - before.answer_at, call, &fit);
  Result<GenerateResult> result =
      room.ok() ? Answer(turn.user, std::move(fit), call) : Result<GenerateResult>(room);
  if (!result.ok()) state_ = before;
  return result;
}

// An answer that was cut in a larger context may need room before it can go on.
Status ChatCore::FitResumed(const std::string& user, size_t answer_tokens, const ChatCall& call,
                            Fit* fit) const {
  const uint32_t capacity = call.source->capacity();
  if (fit->prompt.size() + answer_tokens <= capacity) return {};
  if (state_.context_full != ContextFull::kStop) {
    SLUICE_ASSIGN(Fit next, MakeRoom(*fit, user, answer_tokens, call));
    if (next.prompt.size() + answer_tokens < capacity) {
      Announce(*fit, next, call);
      *fit = std::move(next);
      return {};
    }
  }
  return TooLong(fit->prompt.size() + answer_tokens, capacity, "the answer that was cut needs");
}

Result<GenerateResult> ChatCore::Answer(const std::string& user, Fit fit, const ChatCall& call) {
  Generation* generation = call.generation;
  const uint32_t capacity = call.source->capacity();
  const size_t resumed = generation->ids().size();
  uint32_t reused = 0;
  if (call.tick) {
    generation->SetTick([&] {
      call.tick([&] { return With(user, fit, generation->text(), generation->ids(), true); });
    });
  }
  while (true) {
    std::vector<TokenId> timeline = fit.prompt;
    timeline.insert(timeline.end(), generation->ids().begin(), generation->ids().end());
    Result<uint32_t> kept = AlignTimeline(call.source, timeline, generation->cancel());
    if (!kept.ok()) {
      if (!generation->cancelled()) return kept.status();
      generation->MarkCancelled();
      break;
    }
    if (generation->ids().size() == resumed) reused = *kept;
    SLUICE_TRY(generation->Run(call.source));
    if (!generation->ended_by_context() || state_.context_full == ContextFull::kStop) break;
    // Full in the middle of the answer: leave more turns out and go on where it stood, if that
    // makes room.
    const size_t answer = generation->ids().size();
    Result<Fit> next = MakeRoom(fit, user, answer, call);
    if (!next.ok() && generation->cancelled()) {
      generation->MarkCancelled();
      break;
    }
    if (!next.ok()) return next.status();
    if (next->first() == fit.first() || next->prompt.size() + answer >= capacity) break;
    Announce(fit, *next, call);
    fit = std::move(*next);
  }
  GenerateResult result = generation->Finish();
  result.reused_tokens = reused;
  result.prompt_tokens = static_cast<uint32_t>(fit.prompt.size());
  result.dropped_turns = static_cast<uint32_t>(fit.dropped);
  result.summarised_turns = static_cast<uint32_t>(fit.summarised);
  if (result.finish_reason != "cancelled" || !result.text.empty())
    state_ = With(user, fit, result.text, result.ids, WasCut(result.finish_reason));
  return result;
}

ChatState ChatCore::With(const std::string& user, const Fit& fit, const std::string& answer,
                         const std::vector<TokenId>& ids, bool cut) const {
  ChatState state = state_;
  std::vector<ChatTurn>& turns = state.turns;
  turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(fit.first()));
  turns.push_back({user, answer});
  state.summary = fit.summary;
  state.timeline = fit.prompt;
  state.timeline.insert(state.timeline.end(), ids.begin(), ids.end());
  state.answer_at = static_cast<uint32_t>(fit.prompt.size());
  state.cut = cut;
  return state;
}

}  // namespace sluice
