// Session: one timeline of tokens with its KV pages and recurrent states.
//
// Contract: not thread-safe; calls block. Append runs the tokens through the model; afterwards
// logits() is the last token's row. On error the session keeps the tokens it had before the call.
// Context full is kContextFull and changes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sluice/engine.h"
#include "sluice/status.h"

namespace sluice {

class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(Engine* engine);
  ~Session();

  // every_row, if set, is called with (index in ids, logits [vocab]) for each token, in order.
  using LogitsFn = std::function<void(uint32_t index, std::span<const float> logits)>;
  // cancel, if set and true, ends the call at the next layer with kFailed "cancelled"; state as
  // before.
  Status Append(std::span<const TokenId> ids, const LogitsFn& every_row = {},
                const std::atomic<bool>* cancel = nullptr);

  std::span<const float> logits() const;  // of the last appended token; empty before
  uint32_t length() const;                // tokens in the timeline
  uint32_t capacity() const;              // context
  const std::vector<TokenId>& tokens() const;
  // Cuts the timeline back to at most n tokens and returns how many were kept (recurrent models can
  // only cut back to a snapshot; 0 is always possible).
  uint32_t Rewind(uint32_t n);
  // Makes the timeline the longest beginning of ids (always shorter than ids) whose state is known:
  // its own, another session's, or the prefix store's. Returns its length; the rest is to be
  // appended.
  uint32_t Align(std::span<const TokenId> ids);
  // When the timeline reaches this length (a system prompt's end), others will want to begin there.
  void Mark(uint32_t tokens);
  // Writes what is new to the prefix store, for the next run; with_state: also what a recurrent
  // model needs to go on from here. What cannot be kept is a notice, no error.
  void Keep(bool with_state);

  Engine& engine() const;  // the one it was created on

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
