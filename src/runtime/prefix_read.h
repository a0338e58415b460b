// Reading an entry of the prefix store and proving that it is the one that is wanted.
//
// Contract: the payload goes straight into the caller's memory, in pieces that are hashed while
// they are in the processor's cache. An error (kIo, what is wrong) leaves the memory undefined.
#pragma once

#include <memory>

#include "runtime/prefix_entry.h"
#include "runtime/prefix_medium.h"

struct XXH3_state_s;

namespace sluice {

// XXH3-128 over bytes that come in pieces.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  void Reset();
  void Update(ByteSpan bytes);
  PrefixKey Digest() const;

 private:
  XXH3_state_s* const state_;
};
PrefixKey HashBytes(ByteSpan bytes);

// Lets the device begin with what was written, so that the flush at the end is short.
void StartWriteback(const PrefixExtent& extent, uint64_t offset, uint64_t bytes);

// The head, checked in itself and against the size of the extent.
Result<PrefixHead> ReadPrefixHead(const PrefixExtent& extent);
// want: everything but the checksums. state and page are as long as want says.
Status ReadEntry(const PrefixExtent& extent, const PrefixHead& want, MutableByteSpan state,
                 MutableByteSpan page);
// All checksums, with a small buffer; progress counts bytes.
Status VerifyEntry(const PrefixExtent& extent, const PrefixHead& head);

}  // namespace sluice
