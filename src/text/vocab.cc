#include "text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/limits.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// "<0xE2>" -> 0xE2, -1 for anything else.
int ByteOfSpelling(std::string_view s) {
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return -1;
  int value = 0;
  for (char c : s.substr(3, 2)) {
    const int d = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                         : -1;
    if (d < 0) return -1;
    value = value * 16 + d;
  }
  return value;
}

// False when a character is not of the byte alphabet: the spelling is then the text itself.
bool FromByteAlphabet(std::string_view s, std::string* out) {
  out->clear();
  const char* end = s.data() + s.size();
  for (const char* p = s.data(); p < end;) {
    const DecodedChar c = DecodeUtf8(p, end);
    const int byte = c.valid ? MappedToByte(c.value) : -1;
    if (byte < 0) return false;
    out->push_back(static_cast<char>(byte));
    p += c.bytes;
  }
  return true;
}

}  // namespace

uint64_t HashText(std::string_view text) {
  uint64_t h = 0x9E3779B97F4A7C15ull ^ (text.size() * 0xC2B2AE3D27D4EB4Full);
  const char* p = text.data();
  size_t left = text.size();
  while (left > 0) {
    uint64_t chunk = 0;
    const size_t n = std::min<size_t>(left, 8);
    std::memcpy(&chunk, p, n);
    h = (h ^ chunk) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
    p += n;
    left -= n;
  }
  return h;
}

void Vocab::Reserve(uint64_t tokens) {
  tokens = std::min<uint64_t>(tokens, limits::kVocabMax);
  slots_.reserve(tokens);
  kinds_.reserve(tokens);
  bytes_.reserve(tokens * 8);
}

Status Vocab::Put(uint64_t id, std::string_view spelling) {
  if (id >= limits::kVocabMax) {
    return Status(Code::kBadModel, fmt::format("token id {} is too large", id), "vocabulary",
                  fmt::format("at most {} tokens", limits::kVocabMax));
  }
  if (bytes_.size() + spelling.size() > kTextBytesMax) {
    return Status(Code::kBadModel, "the token texts are too long together", "vocabulary");
  }
  if (id >= slots_.size()) {
    slots_.resize(id + 1);
    kinds_.resize(id + 1, TokenKind::kUnused);
  }
  slots_[id] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(spelling.size())};
  kinds_[id] = TokenKind::kNormal;
  bytes_.append(spelling);
  return {};
}

std::string_view Vocab::RawText(TokenId id) const {
  const Slot& slot = slots_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(slot.begin, slot.size);
}

template <typename Keep>
void Vocab::BuildIndex(Keep keep) {
  size_t capacity = 16;
  while (capacity * 2 < static_cast<size_t>(size()) * 3) capacity *= 2;
  index_.assign(capacity, -1);
  for (TokenId id = 0; id < static_cast<TokenId>(size()); ++id) {
    const std::string_view key = Stored(id);
    if (key.empty() || !keep(id)) continue;
    size_t at = HashText(key) & (capacity - 1);
    while (index_[at] >= 0 && Stored(index_[at]) != key) at = (at + 1) & (capacity - 1);
    if (index_[at] < 0) index_[at] = id;  // of two equal texts the first one answers
  }
}

TokenId Vocab::Lookup(std::string_view key) const {
  if (index_.empty() || key.empty()) return -1;
  const size_t mask = index_.size() - 1;
  for (size_t at = HashText(key) & mask; index_[at] >= 0; at = (at + 1) & mask) {
    if (Stored(index_[at]) == key) return index_[at];
  }
  return -1;
}

void Vocab::IndexRaw() {
  BuildIndex([](TokenId) { return true; });
}

TokenId Vocab::FindRaw(std::string_view spelling) const { return Lookup(spelling); }

TokenId Vocab::Find(std::string_view key) const {
  return key.size() > token_bytes_max_ ? -1 : Lookup(key);
}

std::string Vocab::Spell(TokenId id, Spelling spelling) const {
  const std::string_view raw = RawText(id);
  const TokenKind k = kind(id);
  std::string out;
  if (spelling == Spelling::kByteLevel) {
    const bool plain =
        k == TokenKind::kControl || k == TokenKind::kUserDefined || k == TokenKind::kUnknown;
    if (!plain && FromByteAlphabet(raw, &out)) return out;
    return std::string(raw);
  }
  if (k == TokenKind::kByte) {
    const int byte = ByteOfSpelling(raw);
    return byte < 0 ? std::string(raw) : std::string(1, static_cast<char>(byte));
  }
  for (size_t i = 0; i < raw.size();) {
    if (raw.substr(i, kSpaceMark.size()) == kSpaceMark) {
      out.push_back(' ');
      i += kSpaceMark.size();
    } else {
      out.push_back(raw[i++]);
    }
  }
  return out;
}

void Vocab::Finish(Spelling spelling) {
  byte_tokens_.fill(-1);
  std::string spelled;
  spelled.reserve(bytes_.size());
  offsets_.reserve(size() + 1u);
  for (TokenId id = 0; id < static_cast<TokenId>(size()); ++id) {
    if (spelling == Spelling::kSpaceMark && kind(id) == TokenKind::kNormal &&
        ByteOfSpelling(RawText(id)) >= 0) {
      SetKind(id, TokenKind::kByte);
    }
    offsets_.push_back(static_cast<uint32_t>(spelled.size()));
    const std::string text_bytes = Spell(id, spelling);
    spelled += text_bytes;
    if (kind(id) == TokenKind::kByte && text_bytes.size() == 1) {
      byte_tokens_[static_cast<uint8_t>(text_bytes[0])] = id;
    }
  }
  offsets_.push_back(static_cast<uint32_t>(spelled.size()));
  spelled.shrink_to_fit();
  kinds_.shrink_to_fit();
  bytes_ = std::move(spelled);
  slots_ = {};
  BuildIndex([this](TokenId id) {
    const TokenKind k = kind(id);
    return k != TokenKind::kControl && k != TokenKind::kUnknown && k != TokenKind::kByte;
  });
  for (TokenId id : index_) {
    if (id >= 0)
      token_bytes_max_ = std::max(token_bytes_max_, static_cast<uint32_t>(text(id).size()));
  }
  if (spelling == Spelling::kByteLevel) {
    for (uint32_t b = 0; b < 256; ++b) {
      const char c = static_cast<char>(b);
      byte_tokens_[b] = Find(std::string_view(&c, 1));
    }
  }
}

bool Vocab::has_all_bytes() const {
  return std::all_of(byte_tokens_.begin(), byte_tokens_.end(), [](TokenId id) { return id >= 0; });
}

uint64_t Vocab::memory_bytes() const {
  return bytes_.capacity() + slots_.capacity() * sizeof(Slot) +
         offsets_.capacity() * sizeof(uint32_t) + kinds_.capacity() +
         index_.capacity() * sizeof(TokenId) + sizeof(*this);
}

}  // namespace sluice::text
