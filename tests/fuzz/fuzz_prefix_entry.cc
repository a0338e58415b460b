// The head of a prefix store's entry: as it is, and with its checksum made right, so that what lies
// behind the checksum is reached, too. A head that parses is written again and must read the same.
#include <string.h>
#include <xxhash.h>

#include <vector>

#include "runtime/prefix_entry.h"
#include "runtime/prefix_format.h"

namespace {

using namespace sluice;

void Check(bool ok) {
  if (!ok) __builtin_trap();
}

void Parse(ByteSpan bytes, uint64_t file_bytes) {
  const Result<PrefixHead> parsed = ParsePrefixHead(bytes, file_bytes);
  if (!parsed.ok()) return;
  const PrefixHead& head = *parsed;
  Check(head.head_bytes <= bytes.size() && head.file_bytes() == file_bytes);
  uint64_t sum = 0;
  for (const prefix_format::Section& s : head.sections) sum += s.bytes;
  Check(sum == head.state_bytes);
  const std::vector<uint8_t> again = EncodePrefixHead(head);
  const Result<PrefixHead> same = ParsePrefixHead(again, file_bytes);
  Check(same.ok() && same->tokens == head.tokens && same->key == head.key &&
        same->model == head.model && same->length == head.length);
}

uint64_t Number(const std::vector<uint8_t>& bytes, size_t at) {
  uint64_t n = 0;
  memcpy(&n, bytes.data() + at, sizeof(n));
  return n;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Parse({data, size}, size);
  (void)PeekPrefixHeadBytes({data, size});
  using prefix_format::Header;
  if (size < sizeof(Header)) return 0;
  std::vector<uint8_t> bytes(data, data + size);
  memcpy(bytes.data(), prefix_format::kMagic, sizeof(prefix_format::kMagic));
  const uint64_t head_bytes = Number(bytes, offsetof(Header, head_bytes));
  if (head_bytes < sizeof(Header) || head_bytes > prefix_format::kHeadBytesMax) return 0;
  if (bytes.size() < head_bytes) bytes.resize(head_bytes);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data() + prefix_format::kHashedFrom,
                                          head_bytes - prefix_format::kHashedFrom);
  memcpy(bytes.data() + offsetof(Header, head_hash_high), &hash.high64, sizeof(uint64_t));
  memcpy(bytes.data() + offsetof(Header, head_hash_low), &hash.low64, sizeof(uint64_t));
  // The size of the file that the head speaks of, as far as it makes sense.
  const uint64_t state = Number(bytes, offsetof(Header, state_bytes)) & ((1ull << 41) - 1);
  const uint64_t page = Number(bytes, offsetof(Header, page_bytes)) & ((1ull << 41) - 1);
  const uint64_t state_end = head_bytes + state;
  Parse(bytes, page > 0 ? AlignUp(state_end, prefix_format::kAlignment) + page : state_end);
  Parse(bytes, bytes.size());
  return 0;
}
