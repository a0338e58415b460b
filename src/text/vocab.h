// The vocabulary as flat tables: all token bytes in one block, offsets, kinds, an open-addressing
// index.
//
// Contract: two phases. While building, tokens are Put as the file spells them, in any order of
// ids; FindRaw serves the merge list. Finish turns spellings into the bytes the tokens stand for,
// in id order, and drops the spellings; from then on the object is immutable and safe to share.
// Find answers only what text can become: control, unknown and byte tokens are not in the index, so
// no merge can forge one. Bytes per token after Finish: its text + 4 offset + 1 kind + about 7
// index.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace sluice::text {

enum class Spelling : uint8_t {
  kByteLevel,  // GPT-2 byte alphabet; control and user-defined tokens are plain
  kSpaceMark,  // U+2581 stands for a space, <0xXX> for a byte
};

class Vocab {
 public:
  static constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;

  // An id put twice keeps the later text. Errors: id or text beyond the limits.
  Status Put(uint64_t id, std::string_view spelling);
  void SetKind(TokenId id, TokenKind kind) { kinds_[static_cast<size_t>(id)] = kind; }
  void Reserve(uint64_t tokens);
  void IndexRaw();
  TokenId FindRaw(std::string_view spelling) const;
  std::string_view RawText(TokenId id) const;
  void Finish(Spelling spelling);

  uint32_t size() const { return static_cast<uint32_t>(kinds_.size()); }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  std::string_view text(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  TokenId Find(std::string_view text) const;
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  bool has_all_bytes() const;
  uint32_t token_bytes_max() const { return token_bytes_max_; }
  uint64_t memory_bytes() const;

 private:
  struct Slot {
    uint32_t begin = 0, size = 0;
  };
  std::string_view Stored(TokenId id) const { return slots_.empty() ? text(id) : RawText(id); }
  template <typename Keep>
  void BuildIndex(Keep keep);
  TokenId Lookup(std::string_view text) const;
  std::string Spell(TokenId id, Spelling spelling) const;

  std::string bytes_;
  std::vector<Slot> slots_;        // while building
  std::vector<uint32_t> offsets_;  // after Finish
  std::vector<TokenKind> kinds_;
  std::vector<TokenId> index_;  // power of two; -1: empty
  std::array<TokenId, 256> byte_tokens_ = {};
  uint32_t token_bytes_max_ = 0;
};

uint64_t HashText(std::string_view text);

}  // namespace sluice::text
