#include "api/generate_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// An answer that may not end has its end tokens banned, as llama.cpp's --ignore-eos does.
SamplingOptions SamplingFor(const GenerateOptions& options, std::span<const TokenId> eog,
                            uint32_t vocab) {
  SamplingOptions sampling = options.sampling;
  if (!options.ignore_eog) return sampling;
  for (TokenId id : eog) {
    if (id >= 0 && static_cast<uint32_t>(id) < vocab) {
      sampling.logit_bias.emplace_back(id, -INFINITY);
    }
  }
  return sampling;
}

// Length of the longest end of text that could still become the stop string.
size_t PartialMatch(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

Status StopMatcher::Validate(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) return Status(Code::kUsage, "a stop string is empty", "stop");
    if ((static_cast<unsigned char>(stop[0]) & 0xC0) == 0x80) {
      return Status(Code::kUsage, "a stop string begins in the middle of a UTF-8 character",
                    "stop");
    }
  }
  return Status();
}

std::string StopMatcher::Push(std::string_view piece, bool* stopped) {
  *stopped = false;
  held_ += piece;
  size_t best_start = std::string::npos, best_end = std::string::npos, keep = 0;
  for (const std::string& stop : stops_) {
    const size_t start = held_.find(stop);
    if (start == std::string::npos) {
      keep = std::max(keep, PartialMatch(held_, stop));
      continue;
    }
    const size_t end = start + stop.size();
    if (end < best_end || (end == best_end && start < best_start)) {
      best_start = start;
      best_end = end;
    }
  }
  *stopped = best_start != std::string::npos;
  std::string shown = held_.substr(0, *stopped ? best_start : held_.size() - keep);
  held_.erase(0, *stopped ? held_.size() : shown.size());
  return shown;
}

Generation::Generation(const GenerateOptions& options, TextStream* text,
                       std::span<const TokenId> eog, uint32_t vocab)
    : options_(options),
      text_(text),
      eog_(eog.begin(), eog.end()),
      sampler_(SamplingFor(options, eog, vocab), vocab),
      matcher_(options.stops) {}

Status Generation::Validate() const {
  SLUICE_TRY(StopMatcher::Validate(options_.stops));
  if (options_.max_tokens < -1) {
    return Status(Code::kUsage, fmt::format("max_tokens is {}", options_.max_tokens),
                  "generation options", "-1 means until the answer ends");
  }
  if (!text_ && !options_.stops.empty()) {
    return Status(Code::kUsage, "stop strings need the tokenizer", "generation options",
                  "open the model with its text");
  }
  return sampler_.status();
}

bool Generation::IsEog(TokenId id) const {
  return !options_.ignore_eog && std::find(eog_.begin(), eog_.end(), id) != eog_.end();
}

bool Generation::Full() const {
  return options_.max_tokens >= 0 &&
         result_.ids.size() - resumed_ids_ >= static_cast<uint64_t>(options_.max_tokens);
}

void Generation::Show(const std::string& piece) {
  if (piece.empty()) return;
  result_.text += piece;
  const size_t known = std::min(shown_bytes_, piece.size());
  shown_bytes_ -= known;
  if (options_.on_text && known < piece.size()) {
    options_.on_text(std::string_view(piece).substr(known));
  }
}

void Generation::Resume(std::span<const TokenId> ids, size_t shown_bytes) {
  result_.ids.assign(ids.begin(), ids.end());
  resumed_ids_ = ids.size();
  shown_bytes_ = shown_bytes;
  if (!text_) return;
  for (TokenId id : ids) {
    bool stopped = false;
    Show(matcher_.Push(text_->Push(id), &stopped));
  }
}

Status Generation::Run(LogitsSource* source) {
  sampler_.ReserveTimeline(source->capacity());
  std::string& reason = result_.finish_reason;
  while (true) {
    reason = cancelled()                                     ? "cancelled"
             : Full()                                        ? "length"
             : source->tokens().size() >= source->capacity() ? "context"
                                                             : "";
    if (!reason.empty()) return Status();
    SLUICE_ASSIGN(const TokenId id, sampler_.Sample(source->logits(), source->tokens()));
    reason = "stop";
    if (IsEog(id)) return Status();
    result_.ids.push_back(id);
    if (text_) {
      bool stopped = false;
      Show(matcher_.Push(text_->Push(id), &stopped));
      if (stopped) return Status();
    }
    // The last token's own logits would be thrown away: with streamed weights that is a pass over
    // the disk.
    if (Full()) continue;
    const Status appended = source->Append({&id, 1}, options_.cancel);
    if (!appended.ok() && !cancelled()) return appended;
    if (appended.ok() && tick_) tick_();
  }
}

GenerateResult Generation::Finish() {
  if (text_) {
    bool stopped = false;
    Show(matcher_.Push(text_->Flush(), &stopped));
    if (stopped) result_.finish_reason = "stop";
    Show(matcher_.Flush());
  }
  return std::move(result_);
}

uint32_t LogitsSource::Align(std::span<const TokenId> ids) {
  const std::vector<TokenId>& have = tokens();
  const size_t most = std::min(have.size(), ids.empty() ? 0 : ids.size() - 1);
  size_t common = 0;
  while (common < most && have[common] == ids[common]) ++common;
  return common < have.size() ? Rewind(static_cast<uint32_t>(common))
                              : static_cast<uint32_t>(common);
}

Result<uint32_t> AlignTimeline(LogitsSource* source, std::span<const TokenId> ids,
                               const std::atomic<bool>* cancel) {
  const std::vector<TokenId>& have = source->tokens();
  if (have.size() == ids.size() && std::equal(ids.begin(), ids.end(), have.begin()) &&
      !source->logits().empty()) {
    return static_cast<uint32_t>(ids.size());
  }
  const uint32_t kept = source->Align(ids);
  SLUICE_TRY(source->Append(ids.subspan(kept), cancel));
  return kept;
}

Result<GenerateResult> GenerateFrom(LogitsSource* source, std::span<const TokenId> prompt,
                                    TokenId bos, Generation* generation,
                                    const std::atomic<bool>* cancel) {
  SLUICE_TRY(generation->Validate());
  if (prompt.empty() && source->logits().empty()) {
    if (bos < 0) {
      return Status(Code::kUsage, "the prompt is empty and the model has no BOS token", "prompt",
                    "give at least one token");
    }
    prompt = {&bos, 1};
  }
  const size_t held = source->tokens().size();
  if (held + prompt.size() > source->capacity()) {
    const std::string behind = held == 0 ? "" : fmt::format(" behind {} others", held);
    return Status(Code::kContextFull,
                  fmt::format("the prompt has {} tokens{} and the context holds {}", prompt.size(),
                              behind, source->capacity()),
                  "", "shorten it or enlarge the context (--ctx)");
  }
  if (!prompt.empty()) {
    // A fresh timeline may begin where another one has been.
    const uint32_t kept = source->tokens().empty() ? source->Align(prompt) : 0;
    const Status appended = source->Append(prompt.subspan(kept), cancel);
    if (!appended.ok()) {
      if (appended.code() == Code::kContextFull || !generation->cancelled()) return appended;
      generation->MarkCancelled();
      return generation->Finish();
    }
  }
  SLUICE_TRY(generation->Run(source));
  return generation->Finish();
}

}  // namespace sluice
