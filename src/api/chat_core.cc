#include "api/chat_core.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

// When turns are dropped, they are dropped until a quarter of the context is free: each drop runs
// the remaining conversation through the model again, so it must not happen at every token.
uint32_t RoomyLimit(uint32_t capacity) { return capacity - capacity / 4; }

Status TooLong(size_t tokens, uint32_t capacity, bool alone) {
  return Status(
      Code::kContextFull,
      fmt::format("{} {} tokens and the context holds {}",
                  alone ? "this message alone needs" : "the conversation needs", tokens, capacity),
      "context", alone ? "shorten it or enlarge the context" : "start anew or enlarge the context");
}

void Announce(const ChatCore::NoticeFn& notice, size_t turns) {
  if (!notice || turns == 0) return;
  notice(turns == 1 ? std::string("the context is full: the oldest turn was dropped")
                    : fmt::format("the context is full: the {} oldest turns were dropped", turns));
}

}  // namespace

std::string ChatCore::MessagesJson(size_t first, const std::string* user) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!system_.empty()) add("system", system_);
  for (size_t i = first; i < turns_.size(); ++i) {
    add("user", turns_[i].user);
    add("assistant", turns_[i].answer);
  }
  if (user) add("user", *user);
  return messages.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool ChatCore::Undo() {
  if (turns_.empty()) return false;
  turns_.pop_back();
  return true;
}

Result<ChatCore::Fit> ChatCore::FitPrompt(const std::string& user, const RenderFn& render,
                                          uint32_t capacity) const {
  Fit fit;
  SLUICE_ASSIGN(fit.prompt, render(MessagesJson(0, &user)));
  if (fit.prompt.size() < capacity) return fit;
  if (mode_ == ContextFull::kStop || turns_.empty()) {
    return TooLong(fit.prompt.size(), capacity, turns_.empty());
  }
  SLUICE_ASSIGN(fit, DropMore(fit, user, render, 0, capacity));
  if (fit.prompt.size() >= capacity) return TooLong(fit.prompt.size(), capacity, true);
  return fit;
}

Result<ChatCore::Fit> ChatCore::DropMore(const Fit& now, const std::string& user,
                                         const RenderFn& render, size_t answer_tokens,
                                         uint32_t capacity) const {
  Fit fit = now;
  while (fit.dropped < turns_.size()) {
    ++fit.dropped;
    SLUICE_ASSIGN(fit.prompt, render(MessagesJson(fit.dropped, &user)));
    if (fit.prompt.size() + answer_tokens <= RoomyLimit(capacity)) break;
  }
  return fit;
}

Result<GenerateResult> ChatCore::Ask(const std::string& user, const RenderFn& render,
                                     LogitsSource* source, Generation* generation,
                                     const std::atomic<bool>* cancel, const NoticeFn& notice) {
  SLUICE_TRY(generation->Validate());
  const uint32_t capacity = source->capacity();
  SLUICE_ASSIGN(Fit fit, FitPrompt(user, render, capacity));
  Announce(notice, fit.dropped);
  std::vector<TokenId> timeline = fit.prompt;
  uint32_t reused = 0;
  while (true) {
    Result<uint32_t> kept = AlignTimeline(source, timeline, cancel);
    if (!kept.ok()) {
      if (!generation->cancelled()) return kept.status();
      generation->MarkCancelled();
      break;
    }
    if (generation->ids().empty()) reused = *kept;
    SLUICE_TRY(generation->Run(source));
    if (!generation->ended_by_context() || mode_ == ContextFull::kStop) break;
    // Full in the middle of the answer: drop more turns and go on where it stood, if that makes
    // room.
    const size_t answer = generation->ids().size();
    SLUICE_ASSIGN(Fit next, DropMore(fit, user, render, answer, capacity));
    if (next.dropped == fit.dropped || next.prompt.size() + answer >= capacity) break;
    Announce(notice, next.dropped - fit.dropped);
    fit = std::move(next);
    timeline = fit.prompt;
    timeline.insert(timeline.end(), generation->ids().begin(), generation->ids().end());
  }
  GenerateResult result = generation->Finish();
  result.reused_tokens = reused;
  result.dropped_turns = static_cast<uint32_t>(fit.dropped);
  if (result.finish_reason == "cancelled" && result.text.empty()) return result;
  turns_.erase(turns_.begin(), turns_.begin() + static_cast<std::ptrdiff_t>(fit.dropped));
  turns_.push_back({user, result.text});
  return result;
}

}  // namespace sluice
