// Room by a summary: the model tells the oldest turns in its own words (docs/cli.md, Chat).
#include <fmt/format.h>

#include <algorithm>

#include "api/chat_core.h"

namespace sluice {
namespace {

constexpr size_t kTurnsKept = 2;  // the newest, word for word
// A summary gets an eighth of the context: three quarters are to be full at most afterwards.
constexpr uint32_t kSummaryShare = 8;
constexpr uint32_t kSummaryTokensMin = 32, kSummaryTokensMax = 512;

constexpr const char* kRequest =
    "Summarize our conversation so far, including any earlier summary, in a few short sentences. "
    "Keep names, numbers, facts, decisions and open questions. Write only the summary.";

// Without thoughts of a reasoning model and blank ends; an unfinished thought is no summary.
std::string CleanSummary(std::string text) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const size_t close = text.rfind(kClose);
  if (close != std::string::npos) {
    text.erase(0, close + kClose.size());
  } else if (text.find(kOpen) != std::string::npos) {
    return "";
  }
  const size_t from = text.find_first_not_of(" \t\r\n");
  if (from == std::string::npos) return "";
  return text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1);
}

}  // namespace

// One past the last turn to summarise: as few as leave `tokens` more within a roomy context, but
// never the newest ones.
Result<size_t> ChatCore::ChooseTurns(const Fit& now, const std::string& user, size_t tokens,
                                     const ChatCall& call) const {
  const uint32_t capacity = call.source->capacity();
  const size_t newest = state_.turns.size() - std::min(state_.turns.size(), kTurnsKept);
  size_t end = now.first();
  while (end < newest) {
    ++end;
    SLUICE_ASSIGN(const std::vector<TokenId> prompt,
                  call.render(MessagesJson(now.summary, end, state_.turns.size(), &user)));
    if (prompt.size() + tokens <= capacity - capacity / 4) break;
  }
  return end;
}

// now with its oldest turns in the summary, or as it was with the trouble named. An error only when
// the call was cancelled or the conversation itself cannot be rendered.
Result<ChatCore::Fit> ChatCore::Summarise(const Fit& now, const std::string& user,
                                          size_t answer_tokens, const ChatCall& call) const {
  const uint32_t capacity = call.source->capacity();
  const uint32_t tokens =
      std::clamp(capacity / kSummaryShare, kSummaryTokensMin, kSummaryTokensMax);
  Fit same = now;
  const auto trouble = [&](std::string what) {
    same.trouble = std::move(what);
    return same;
  };
  SLUICE_ASSIGN(size_t end, ChooseTurns(now, user, answer_tokens + tokens, call));
  const ChatCall::RenderFn& render = call.render_request ? call.render_request : call.render;
  const std::string request = kRequest;
  std::vector<TokenId> prompt;
  for (; end > now.first(); --end) {
    Result<std::vector<TokenId>> ids =
        render(MessagesJson(now.summary, now.first(), end, &request));
    if (!ids.ok()) return trouble(ids.status().what());
    prompt = std::move(*ids);
    if (prompt.size() + tokens <= capacity) break;
  }
  if (end == now.first()) {
    return trouble(prompt.empty() ? "the last two turns stay as they are"
                                  : "the request for it does not fit");
  }
  Result<GenerateResult> said = call.summarise(prompt, tokens);
  if (call.generation->cancelled()) return Status(Code::kFailed, "cancelled");
  if (!said.ok()) return trouble(said.status().what());
  Fit fit = now;
  fit.summary = CleanSummary(std::move(said->text));
  if (fit.summary.empty()) return trouble("it came out empty");
  fit.summarised += end - now.first();
  const Status rendered = Render(user, call, &fit);
  if (!rendered.ok()) return trouble(rendered.what());
  return fit;
}

}  // namespace sluice
