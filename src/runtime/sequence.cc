#include "runtime/sequence.h"

#include <algorithm>

namespace sluice {

Sequence::Sequence(SequencePool* pool, uint32_t context)
    : pool_(pool),
      context_(context),
      pages_((context + kKvPageTokens - 1) / kKvPageTokens, nullptr) {
  tokens_.reserve(context);
  if (pool->state_floats > 0 && !pool->free_states.empty()) {
    state_ = pool->free_states.back();
    pool->free_states.pop_back();
    ClearState();
  }
  view_ = {pages_.data(), state_};
}

Sequence::~Sequence() {
  for (uint32_t i = 0; i < pages_used_; ++i) pool_->free_pages.push_back(pages_[i]);
  if (state_ != nullptr) pool_->free_states.push_back(state_);
}

bool Sequence::Reserve(uint32_t tokens) {
  if (pool_->page_bytes == 0) return true;  // no attention layer
  const uint32_t need = (tokens + kKvPageTokens - 1) / kKvPageTokens;
  while (pages_used_ < need) {
    if (pool_->free_pages.empty()) return false;
    pages_[pages_used_++] = pool_->free_pages.back();
    pool_->free_pages.pop_back();
  }
  return true;
}

void Sequence::Cut(uint32_t n) {
  if (n >= length()) return;
  tokens_.resize(n);
  if (recurrent()) state_stale = true;
  const uint32_t keep = (n + kKvPageTokens - 1) / kKvPageTokens;
  while (pages_used_ > keep) pool_->free_pages.push_back(pages_[--pages_used_]);
}

void Sequence::ClearState() {
  if (state_ != nullptr) std::fill(state_, state_ + pool_->state_floats, 0.0f);
  state_stale = false;
}

}  // namespace sluice
