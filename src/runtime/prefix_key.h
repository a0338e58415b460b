// Names for prefixes of token ids: a hash chain over pages of kKvPageTokens tokens.
//
// Contract: pure. Two prefixes with one key are the same text for the same model, KV format and
// arithmetic: the root of a chain is the identity, each link adds tokens (XXH3-128; a collision is
// caught by comparing the tokens themselves, which every entry keeps).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sluice/types.h"

namespace sluice {

// What must be equal for a state to be of use: another model, format or order of additions gives
// other numbers.
struct PrefixIdentity {
  std::string model;       // its own name and a hash of the header and samples of the data
  std::string kv_format;   // "f16", ...
  std::string arithmetic;  // instruction set, activation mode, version of the numerics
  uint64_t page_bytes = 0, state_bytes = 0;
};

struct PrefixKey {
  uint64_t high = 0, low = 0;
  bool operator==(const PrefixKey&) const = default;
  std::string Hex() const;  // 32 digits
};

PrefixKey RootKey(const PrefixIdentity& identity);
// The key of `parent`'s prefix followed by `tokens`.
PrefixKey ChainKey(const PrefixKey& parent, std::span<const TokenId> tokens);

}  // namespace sluice
