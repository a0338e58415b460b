// Text to token ids and back.
//
// Contract: immutable after building, safe to share between threads. Flat tables: <= 25 MB for a 150 k
// vocabulary, built in < 0.5 s. Encoding is linear in the text: pre-tokenizers are hand-written scanners, no
// backtracking. User text can never forge a control token: Encode takes pieces of two kinds, and only
// kMarkup pieces are searched for added/special tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "sluice/types.h"

namespace sluice {



enum class PieceKind : uint8_t { kText, kMarkup };
struct TextPiece {
  PieceKind kind = PieceKind::kText;
  std::string_view text;
};

struct SpecialTokens {
  TokenId bos = -1, eos = -1, unk = -1, pad = -1;
  std::vector<TokenId> eog;  // every token that ends a generation (eos, eot, <|im_end|>, ...)
  bool add_bos = false, add_eos = false;
};

enum class TokenKind : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// What a GGUF file or tokenizer.json says, as the builder wants it; string lists are pulled once, in order.
struct TokenizerSource;  // text/tokenizer_source.h

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids without BOS/EOS. kMarkup pieces may contain added tokens, kText pieces never become control tokens.
  virtual std::vector<TokenId> Encode(const std::vector<TextPiece>& pieces) const = 0;
  // One string; special: parse added tokens in it; add_bos: prepend BOS if the model wants one (never twice).
  std::vector<TokenId> Encode(std::string_view text, bool special, bool add_bos) const;

  // The bytes a token stands for. Control tokens give their text only when special is true.
  virtual std::string_view TokenText(TokenId id, bool special, std::string* scratch) const = 0;
  std::string Decode(const std::vector<TokenId>& ids, bool special = true) const;

  virtual uint32_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual TokenId FindToken(std::string_view text) const = 0;  // exact vocabulary entry, -1 if none
  virtual uint64_t memory_bytes() const = 0;
  const SpecialTokens& special() const { return special_; }
  SpecialTokens& mutable_special() { return special_; }

 protected:
  SpecialTokens special_;
};

// Streaming detokenizer: Push returns the bytes that are complete UTF-8 so far; Flush drops an incomplete
// tail (never a half character, never an invented U+FFFD).
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, bool special = false) : tokenizer_(tokenizer), special_(special) {}
  std::string Push(TokenId id);
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  bool first_ = true;
  std::string pending_;
};

}  // namespace sluice
