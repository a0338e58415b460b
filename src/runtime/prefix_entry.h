// The head of a prefix store's entry, to bytes and back.
//
// Contract: pure. ParsePrefixHead believes nothing before it is checked: the head's checksum, every
// length against its limit, and the size of the file against what the head says; a head that comes
// out is consistent in itself. Its errors are kIo with what is wrong; the caller knows the file.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/prefix_format.h"
#include "runtime/prefix_key.h"

namespace sluice {

struct PrefixHead {
  bool checkpoint = false;
  PrefixKey identity, key;
  std::string model, kv_format, arithmetic;
  uint32_t length = 0;
  std::vector<TokenId> tokens;
  std::vector<prefix_format::Section> sections;  // in the order of the state
  uint64_t head_bytes = 0, state_bytes = 0, page_bytes = 0;
  PrefixKey page_hash;

  uint64_t state_offset() const { return head_bytes; }
  uint64_t state_end() const { return head_bytes + state_bytes; }
  uint64_t page_offset() const { return AlignUp(state_end(), prefix_format::kAlignment); }
  uint64_t file_bytes() const { return page_bytes > 0 ? page_offset() + page_bytes : state_end(); }
};

// The bytes to set aside for a head: texts and tokens as they are, a state's sections at their
// most.
uint64_t PrefixHeadBytes(const PrefixHead& head);
// head_bytes bytes, checksum included.
std::vector<uint8_t> EncodePrefixHead(const PrefixHead& head);

// How many bytes the head that begins with these takes (at least a Header of them).
Result<uint64_t> PeekPrefixHeadBytes(ByteSpan bytes);
// bytes: the beginning of the file, at least the whole head.
Result<PrefixHead> ParsePrefixHead(ByteSpan bytes, uint64_t file_bytes);

}  // namespace sluice
