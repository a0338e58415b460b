// Sequence: the memory of one timeline: its tokens, KV pages and recurrent state.
//
// Contract: owner-thread only. Pages come from the engine's pool and go back on destruction or
// Clear. length() counts tokens whose state is complete; pages beyond it may hold leftovers of a
// failed step and are overwritten. Recurrent state has no past: after a failed or cancelled step,
// or a cut, it is marked stale and the next step recomputes the timeline from its start.
#pragma once

#include <cstdint>
#include <vector>

#include "model/tile.h"
#include "sluice/types.h"

namespace sluice {

// The KV pages and state slots of an engine, placed in arenas at open.
struct SequencePool {
  std::vector<uint8_t*> free_pages;
  std::vector<float*> free_states;
  uint64_t page_bytes = 0, state_floats = 0;
};

class Sequence {
 public:
  Sequence(SequencePool* pool, uint32_t context);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Pages for positions [0, tokens); false when the pool is empty.
  bool Reserve(uint32_t tokens);
  void Cut(uint32_t n);  // keeps the first n tokens
  void ClearState();     // zero recurrence, position 0

  const SequenceView& view() const { return view_; }
  std::vector<TokenId>& tokens() { return tokens_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint32_t length() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t context() const { return context_; }
  bool recurrent() const { return pool_->state_floats > 0; }
  bool has_state() const { return pool_->state_floats == 0 || state_ != nullptr; }
  bool state_stale = false;

 private:
  SequencePool* pool_;
  uint32_t context_;
  std::vector<TokenId> tokens_;
  std::vector<uint8_t*> pages_;
  uint32_t pages_used_ = 0;
  float* state_ = nullptr;
  SequenceView view_;
};

}  // namespace sluice
