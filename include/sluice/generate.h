// Sampling and generation on top of a session, and a chat with history.
//
// Contract: Sampler is deterministic: same logits history, options and seed give the same tokens on every
// machine. NaN or infinite logits are an error, never a token. Not thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/session.h"
#include "sluice/status.h"

namespace sluice {

struct SamplingOptions {
  double temperature = 0.8;       // 0: greedy
  int top_k = 40;                 // 0: off
  double top_p = 0.95;            // 1: off
  double min_p = 0.05;            // 0: off
  double typical_p = 1;           // 1: off
  double repeat_penalty = 1;      // 1: off
  double presence_penalty = 0, frequency_penalty = 0;
  int penalty_last_n = 64;        // -1: whole timeline
  double dry_multiplier = 0;      // 0: off
  double dry_base = 1.75;
  int dry_allowed_length = 2;
  int dry_last_n = -1;
  std::vector<TokenId> dry_breakers;
  std::vector<std::pair<TokenId, double>> logit_bias;
  uint64_t seed = 0;
};

// Applies a model's generation_config JSON (temperature, top_k, top_p, min_p, repetition_penalty, do_sample)
// to the options.
Status ApplyGenerationDefaults(const std::string& json, SamplingOptions* options);

class Sampler {
 public:
  Sampler(const SamplingOptions& options, uint32_t vocab);
  ~Sampler();
  // Picks the next token given logits [vocab] and the timeline so far. kFailed on NaN/Inf.
  Result<TokenId> Sample(std::span<const float> logits, std::span<const TokenId> history);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;              // -1: until EOG or the context's end
  std::vector<std::string> stops;       // cut exactly, also across token boundaries
  bool ignore_eog = false;
  std::function<void(std::string_view)> on_text;  // streamed, complete UTF-8 only, stop text held back
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerateResult {
  std::string text;
  std::vector<TokenId> ids;             // without the EOG token
  std::string finish_reason;            // "stop", "length", "context", "cancelled"
};

// Appends prompt (may be empty if the session has logits), then generates.
Result<GenerateResult> Generate(Session* session, std::span<const TokenId> prompt, const GenerateOptions& options);

enum class ContextFull { kStop, kDrop };

// A conversation: renders, finds the common prefix with the timeline, appends only what is new.
class Chat {
 public:
  Chat(Engine* engine, Session* session);
  ~Chat();
  void SetSystem(const std::string& text);
  void SetContextFull(ContextFull mode);
  void SetTemplateOptions(const RenderOptions& options);
  // Adds the user's message, answers it, and keeps both. notice is called when old turns are dropped.
  Result<GenerateResult> Ask(const std::string& user, const GenerateOptions& options,
                             const std::function<void(std::string_view)>& notice = {});
  void Clear();                          // forgets the turns, keeps the system text
  bool Undo();                           // removes the last exchange
  std::string HistoryJson() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
