// The bytes of a prefix store's entry on disk, version 1. docs/prefix-store.md is its paper.
//
// Contract: layout only. Little-endian. A file is
//   head   [0, head_bytes)          Header, texts, tokens, sections, zeros up to a multiple of 4096
//   state  [head_bytes, + state_bytes)
//   page   at the next multiple of 4096; the bytes in between are zero
// and ends there. Payloads begin at multiples of 4096 so that they can be read with O_DIRECT. The
// head holds, in this order: Header; model, kv and arithmetic as text; tokens as int32 from the
// next multiple of 8; Section[sections] from the next multiple of 8.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace sluice::prefix_format {

static_assert(std::endian::native == std::endian::little, "entries are written as they lie");

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'P', 'X'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 4096;

enum Kind : uint32_t { kPage = 1, kCheckpoint = 2 };

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t zero_version;                   // room for flags that old programs must refuse
  uint64_t head_hash_high, head_hash_low;  // XXH3-128 of the head from the next field to its end
  uint64_t head_bytes;
  uint64_t state_bytes, page_bytes;
  uint64_t identity_high, identity_low;  // RootKey of the identity
  uint64_t key_high, key_low;
  uint64_t page_hash_high, page_hash_low;  // XXH3-128 of the page; 0 without one
  uint32_t kind;
  uint32_t length;    // tokens of the prefix; of a page: its own
  uint32_t tokens;    // held here: all of a page, the tail of a checkpoint
  uint32_t sections;  // of the state
  uint16_t model_bytes, kv_bytes, arithmetic_bytes;
  uint16_t zero;
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);
constexpr uint64_t kHashedFrom = 32;
static_assert(offsetof(Header, head_bytes) == kHashedFrom);

// Consecutive bytes of the state: the sections tile it in order, each with its own checksum, so
// that a writer may produce them in any order without reading anything back.
struct Section {
  uint64_t bytes;
  uint64_t hash_high, hash_low;  // XXH3-128
};
static_assert(sizeof(Section) == 24 && std::is_trivially_copyable_v<Section>);

constexpr uint32_t kSectionsMax = 1024;         // 2 per layer of a deep hybrid is 128
constexpr uint32_t kTextBytesMax = 1024;        // each of the three texts
constexpr uint64_t kHeadBytesMax = 32768;       // all of the above at their largest
constexpr uint64_t kPartBytesMax = 1ull << 40;  // state or page; keeps sums far from overflow
static_assert(sizeof(Header) + 3 * kTextBytesMax + 8 + 64 * 4 + 8 + kSectionsMax * 24 <
              kHeadBytesMax);

}  // namespace sluice::prefix_format
