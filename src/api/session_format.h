// Layout of a session file (docs/session-file.md), apart from the code that reads it.
//
// Contract: little-endian. A header of 48 bytes, then `payload_bytes` bytes of payload and the end
// of the file. The checksum is XXH3-128 of the header with its checksum zeroed, followed by the
// payload. Later versions may change everything after `version`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::session_format {

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'S', 'F'};
constexpr uint32_t kVersion = 1;
// A million tokens of text and ids are some 10 MB.
constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t flags;  // 0
  uint64_t payload_bytes;
  uint64_t reserved;  // 0
  uint64_t checksum_high, checksum_low;
};
static_assert(sizeof(Header) == 48);
static_assert(offsetof(Header, payload_bytes) == 16 && offsetof(Header, checksum_high) == 32);

// The generator of random numbers that `seed` belongs to: SplitMix64 of seed and timeline length
// (docs/sampling.md). It has no state beside the two.
constexpr uint32_t kGeneratorSplitMix = 1;

}  // namespace sluice::session_format
