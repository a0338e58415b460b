// Text to token ids and back.
//
// Contract: immutable after building, safe to share between threads. Flat tables: <= 25 MB for a
// 150 k vocabulary, built in < 0.5 s. Encoding is linear in the text: pre-tokenizers are
// hand-written scanners, no backtracking. User text can never forge a control token: Encode takes
// pieces of two kinds, and only kMarkup pieces are searched for added/special tokens.
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
  // add_bos: Encode(.., add_bos) prepends `prefix` (nearly always just bos). add_eos is what the
  // file says; nothing here appends EOS, since a prompt that ends with it would have nothing left
  // to answer.
  bool add_bos = false, add_eos = false;
  std::vector<TokenId> prefix;
};

enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// What a GGUF file or tokenizer.json says, as the builder wants it; string lists are pulled once,
// in order.
struct TokenizerSource;  // text/tokenizer_source.h

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids without BOS/EOS. The pieces are one text: cut and merged across their borders as if it were
  // one string. A control token is recognised only where all of it lies in kMarkup; added tokens
  // that are no control tokens (<think>, runs of spaces) are recognised everywhere.
  virtual std::vector<TokenId> Encode(const std::vector<TextPiece>& pieces) const = 0;
  // One string; special: parse added tokens in it; add_bos: prepend BOS if the model wants one
  // (never twice).
  std::vector<TokenId> Encode(std::string_view text, bool special, bool add_bos) const;

  // The bytes a token stands for. Control tokens give their text only when special is true; an id
  // outside the vocabulary gives nothing.
  virtual std::string_view TokenText(TokenId id, bool special, std::string* scratch) const = 0;
  // Always valid UTF-8: broken sequences become U+FFFD the way the tokenizers library does it.
  std::string Decode(const std::vector<TokenId>& ids, bool special = true) const;

  virtual uint32_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual TokenId FindToken(
      std::string_view text) const = 0;  // the token that stands for exactly this text, -1 if none
  virtual uint64_t memory_bytes() const = 0;
  // The vocabulary puts a space in front of a text's first word; decoding drops it again.
  virtual bool strips_first_space() const { return false; }
  const SpecialTokens& special() const { return special_; }
  SpecialTokens& mutable_special() { return special_; }

 protected:
  SpecialTokens special_;
};

// Streaming detokenizer: Push returns the bytes that are complete UTF-8 so far; Flush drops an
// incomplete tail and returns nothing (never a half character, never an invented U+FFFD: bytes that
// can no longer become a character are dropped). continuation: the stream goes on from a text
// already shown, so the space of a first word is kept.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, bool special = false,
                         bool continuation = false)
      : tokenizer_(tokenizer), special_(special), first_(!continuation) {}
  std::string Push(TokenId id);
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  bool first_;
  std::string pending_;
};

}  // namespace sluice
