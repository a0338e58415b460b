// One answer, token by token, apart from the engine: what Generate and Chat share.
//
// Contract: a Generation is resumable: Run stops at the end of the context with finish_reason
// "context", the caller may rebuild the timeline (prompt + ids so far) and Run again; Finish
// flushes what was held back. Text is passed on in whole UTF-8 characters, never a byte of a stop
// string; the pieces joined are result.text. Interfaces are not owned and outlive the Generation.
// Not thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/sampler.h"
#include "sluice/generate.h"

namespace sluice {

// A timeline that yields logits: a Session, or a fake in tests. Semantics are those of Session.
class LogitsSource {
 public:
  virtual ~LogitsSource() = default;
  virtual Status Append(std::span<const TokenId> ids, const std::atomic<bool>* cancel) = 0;
  virtual std::span<const float> logits() const = 0;
  virtual const std::vector<TokenId>& tokens() const = 0;
  virtual uint32_t capacity() const = 0;
  virtual uint32_t Rewind(uint32_t n) = 0;
  // As Session::Align; by itself: what the timeline has in common with ids.
  virtual uint32_t Align(std::span<const TokenId> ids);
};

// Token ids to text in whole characters (text/tokenizer.h StreamDecoder, or a fake).
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual std::string Push(TokenId id) = 0;
  virtual std::string Flush() = 0;
};

// Finds stop strings in text that arrives in pieces. The stop whose last byte comes first wins
// (among those the longest), so the cut does not depend on how the text was split.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // kUsage for an empty stop, or one that begins in the middle of a character.
  static Status Validate(const std::vector<std::string>& stops);

  // Returns what may be shown now; sets *stopped when a stop string was completed.
  std::string Push(std::string_view piece, bool* stopped);
  // What was held back as a possible beginning of a stop.
  std::string Flush() { return std::move(held_); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

class Generation {
 public:
  // text may be null: ids only, no stop strings. eog: tokens that end the answer.
  Generation(const GenerateOptions& options, TextStream* text, std::span<const TokenId> eog,
             uint32_t vocab);

  Status Validate() const;
  // Before Run: takes up an answer that was cut: its tokens so far and how much of its text was
  // shown. on_text is given what comes after that; max_tokens counts the new tokens.
  void Resume(std::span<const TokenId> ids, size_t shown_bytes);
  // Called after each token that passed through the model.
  void SetTick(std::function<void()> tick) { tick_ = std::move(tick); }
  // Generates until an end; kFailed on invalid logits. The source must have logits.
  Status Run(LogitsSource* source);
  // Flushes the text and returns the result. Once.
  GenerateResult Finish();

  bool ended_by_context() const { return result_.finish_reason == "context"; }
  const std::atomic<bool>* cancel() const { return options_.cancel; }
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  const std::vector<TokenId>& ids() const { return result_.ids; }
  const std::string& text() const { return result_.text; }  // what was shown, so far
  void MarkCancelled() { result_.finish_reason = "cancelled"; }

 private:
  bool IsEog(TokenId id) const;
  bool Full() const;
  void Show(const std::string& piece);

  GenerateOptions options_;
  TextStream* text_;
  std::vector<TokenId> eog_;
  TokenSampler sampler_;
  StopMatcher matcher_;
  GenerateResult result_;
  std::function<void()> tick_;
  size_t resumed_ids_ = 0, shown_bytes_ = 0;  // of the answer that was cut
};

// Makes the source's timeline equal `ids`, keeping the common prefix, and leaves it with fresh
// logits. Returns how many tokens were kept.
Result<uint32_t> AlignTimeline(LogitsSource* source, std::span<const TokenId> ids,
                               const std::atomic<bool>* cancel);

// Generate() on interfaces: bos < 0 means the model has none.
Result<GenerateResult> GenerateFrom(LogitsSource* source, std::span<const TokenId> prompt,
                                    TokenId bos, Generation* generation,
                                    const std::atomic<bool>* cancel);

}  // namespace sluice
