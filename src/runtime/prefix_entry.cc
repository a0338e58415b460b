#include "runtime/prefix_entry.h"

#include <fmt/format.h>
#include <string.h>
#include <xxhash.h>

#include "memory/kv_pages.h"

namespace sluice {
namespace {

using prefix_format::Header;
using prefix_format::Section;

uint64_t TextBytes(const PrefixHead& head) {
  return head.model.size() + head.kv_format.size() + head.arithmetic.size();
}

struct HeadLayout {
  uint64_t tokens, sections, end;  // offsets
};

HeadLayout LayoutOf(uint64_t text_bytes, uint64_t tokens, uint64_t sections) {
  HeadLayout at{};
  at.tokens = AlignUp(sizeof(Header) + text_bytes, 8);
  at.sections = AlignUp(at.tokens + tokens * sizeof(TokenId), 8);
  at.end = at.sections + sections * sizeof(Section);
  return at;
}

Status Bad(std::string what) { return Status(Code::kIo, std::move(what)); }

XXH128_hash_t HashOf(ByteSpan head) {
  return XXH3_128bits(head.data() + prefix_format::kHashedFrom,
                      head.size() - prefix_format::kHashedFrom);
}

Result<Header> ReadHeader(ByteSpan bytes) {
  Header h{};
  if (bytes.size() < sizeof(h)) return Bad("shorter than a header");
  memcpy(&h, bytes.data(), sizeof(h));
  if (memcmp(h.magic, prefix_format::kMagic, sizeof(h.magic)) != 0) return Bad("not an entry");
  if (h.version != prefix_format::kVersion || h.zero_version != 0)
    return Bad(fmt::format("version {}, want {}", h.version, prefix_format::kVersion));
  if (h.head_bytes < sizeof(h) || h.head_bytes > prefix_format::kHeadBytesMax ||
      h.head_bytes % prefix_format::kAlignment != 0) {
    return Bad(fmt::format("a head of {} bytes", h.head_bytes));
  }
  return h;
}

// What the numbers of a header must fulfil among themselves.
Status CheckHeader(const Header& h) {
  const bool page = h.kind == prefix_format::kPage;
  if (!page && h.kind != prefix_format::kCheckpoint) return Bad(fmt::format("kind {}", h.kind));
  if (h.model_bytes > prefix_format::kTextBytesMax || h.kv_bytes > prefix_format::kTextBytesMax ||
      h.arithmetic_bytes > prefix_format::kTextBytesMax || h.zero != 0) {
    return Bad("texts too long");
  }
  if (page ? h.tokens != kKvPageTokens : h.tokens >= kKvPageTokens)
    return Bad(fmt::format("{} tokens", h.tokens));
  if (h.length < h.tokens || (h.length - h.tokens) % kKvPageTokens != 0 ||
      (page && h.length != h.tokens)) {
    return Bad(fmt::format("{} tokens of a prefix of {}", h.tokens, h.length));
  }
  if (h.state_bytes > prefix_format::kPartBytesMax || h.page_bytes > prefix_format::kPartBytesMax ||
      (page && h.state_bytes != 0) || (h.tokens == 0 && h.page_bytes != 0)) {
    return Bad(fmt::format("a state of {} and a page of {} bytes", h.state_bytes, h.page_bytes));
  }
  if (h.sections > prefix_format::kSectionsMax || (h.sections == 0) != (h.state_bytes == 0))
    return Bad(fmt::format("{} sections", h.sections));
  const uint64_t texts = uint64_t{h.model_bytes} + h.kv_bytes + h.arithmetic_bytes;
  if (LayoutOf(texts, h.tokens, h.sections).end > h.head_bytes) return Bad("the head is too short");
  return {};
}

Status CheckSections(const PrefixHead& head) {
  uint64_t sum = 0;
  for (const Section& s : head.sections) {
    if (s.bytes == 0 || s.bytes > head.state_bytes - sum) return Bad("sections do not tile");
    sum += s.bytes;
  }
  return sum == head.state_bytes ? Status() : Bad("sections do not tile");
}

}  // namespace

uint64_t PrefixHeadBytes(const PrefixHead& head) {
  const uint64_t sections = head.state_bytes > 0 ? prefix_format::kSectionsMax : 0;
  return AlignUp(LayoutOf(TextBytes(head), head.tokens.size(), sections).end,
                 prefix_format::kAlignment);
}

std::vector<uint8_t> EncodePrefixHead(const PrefixHead& head) {
  std::vector<uint8_t> bytes(head.head_bytes);
  Header h{};
  memcpy(h.magic, prefix_format::kMagic, sizeof(h.magic));
  h.version = prefix_format::kVersion;
  h.kind = head.checkpoint ? prefix_format::kCheckpoint : prefix_format::kPage;
  h.head_bytes = head.head_bytes;
  h.state_bytes = head.state_bytes;
  h.page_bytes = head.page_bytes;
  h.identity_high = head.identity.high;
  h.identity_low = head.identity.low;
  h.key_high = head.key.high;
  h.key_low = head.key.low;
  h.page_hash_high = head.page_hash.high;
  h.page_hash_low = head.page_hash.low;
  h.length = head.length;
  h.tokens = static_cast<uint32_t>(head.tokens.size());
  h.sections = static_cast<uint32_t>(head.sections.size());
  h.model_bytes = static_cast<uint16_t>(head.model.size());
  h.kv_bytes = static_cast<uint16_t>(head.kv_format.size());
  h.arithmetic_bytes = static_cast<uint16_t>(head.arithmetic.size());
  const HeadLayout at = LayoutOf(TextBytes(head), head.tokens.size(), head.sections.size());
  const std::string texts = head.model + head.kv_format + head.arithmetic;
  memcpy(bytes.data() + sizeof(h), texts.data(), texts.size());
  std::copy(head.tokens.begin(), head.tokens.end(),
            reinterpret_cast<TokenId*>(bytes.data() + at.tokens));
  std::copy(head.sections.begin(), head.sections.end(),
            reinterpret_cast<Section*>(bytes.data() + at.sections));
  memcpy(bytes.data(), &h, sizeof(h));
  const XXH128_hash_t hash = HashOf(bytes);
  h.head_hash_high = hash.high64;
  h.head_hash_low = hash.low64;
  memcpy(bytes.data(), &h, sizeof(h));
  return bytes;
}

Result<uint64_t> PeekPrefixHeadBytes(ByteSpan bytes) {
  SLUICE_ASSIGN(const Header h, ReadHeader(bytes));
  return uint64_t{h.head_bytes};
}

Result<PrefixHead> ParsePrefixHead(ByteSpan bytes, uint64_t file_bytes) {
  SLUICE_ASSIGN(const Header h, ReadHeader(bytes));
  if (h.head_bytes > bytes.size()) return Bad("the file ends inside the head");
  const XXH128_hash_t hash = HashOf(bytes.first(h.head_bytes));
  if (hash.high64 != h.head_hash_high || hash.low64 != h.head_hash_low)
    return Bad("the checksum of the head is wrong");
  SLUICE_TRY(CheckHeader(h));
  PrefixHead head;
  head.checkpoint = h.kind == prefix_format::kCheckpoint;
  head.identity = {h.identity_high, h.identity_low};
  head.key = {h.key_high, h.key_low};
  head.page_hash = {h.page_hash_high, h.page_hash_low};
  head.length = h.length;
  head.head_bytes = h.head_bytes;
  head.state_bytes = h.state_bytes;
  head.page_bytes = h.page_bytes;
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(h);
  head.model.assign(text, h.model_bytes);
  head.kv_format.assign(text + h.model_bytes, h.kv_bytes);
  head.arithmetic.assign(text + h.model_bytes + h.kv_bytes, h.arithmetic_bytes);
  const HeadLayout at = LayoutOf(TextBytes(head), h.tokens, h.sections);
  head.tokens.resize(h.tokens);
  if (h.tokens > 0)
    memcpy(head.tokens.data(), bytes.data() + at.tokens, h.tokens * sizeof(TokenId));
  head.sections.resize(h.sections);
  if (h.sections > 0)
    memcpy(head.sections.data(), bytes.data() + at.sections, h.sections * sizeof(Section));
  SLUICE_TRY(CheckSections(head));
  if (head.file_bytes() != file_bytes)
    return Bad(fmt::format("{} bytes, want {}", file_bytes, head.file_bytes()));
  return head;
}

}  // namespace sluice
