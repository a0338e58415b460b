// The tokenizer all supported models share: added tokens, normaliser, pre-tokenizer, merges.
//
// Contract: filled in by a builder (tokenizer_build.cc from GGUF metadata, tokenizer_json.cc from
// tokenizer.json), Finish once, then immutable and safe to share; every Encode brings its own
// scratch. Encode, for the text of all pieces together:
//   1. cut out added tokens (AddedTokens says which may match where);
//   2. each stretch between them: normalise, cut out the added tokens that want normalised text;
//   3. cut into pieces (PreTokenizer);
//   4. merge inside each piece, by rank or by score.
// So text that meets markup without a token between them is cut and merged as one string, as the
// reference does it, and yet user text cannot become a control token: step 1 does not look for one
// there and the vocabulary index of steps 3 and 4 does not hold them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/merges.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace sluice::text {

enum class MergeRule : uint8_t {
  kRank,   // a merge list over ids
  kScore,  // SentencePiece: any pair whose joined text is a token, the best score first
};

class BpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    Spelling spelling = Spelling::kByteLevel;
    MergeRule rule = MergeRule::kRank;
    Vocab vocab;
    MergeTable merges;
    std::vector<float> scores;  // kScore
    AddedTokens added;
    Normalizer normalizer;
    PreTokenizer pre;
    bool byte_fallback = false;  // kSpaceMark: unknown characters become byte tokens
    bool fuse_unknown = false;   // neighbouring unknown characters give one unknown token
    bool ignore_merges = false;  // a piece that is a token is taken whole
    bool prefix_space = false;   // a stretch that does not begin with a space gets one (ByteLevel)
    // Metaspace: spaces become marks before the pre-tokenizer runs, and a stretch without one gets
    // one.
    enum class Metaspace : uint8_t { kOff, kNever, kFirst, kAlways } metaspace = Metaspace::kOff;
    bool strip_first_space = false;  // decoding drops one space at the start
    TokenId unknown = -1;
  };

  // Takes over everything and builds the tables. Errors name `origin`.
  static Result<std::unique_ptr<BpeTokenizer>> Make(Parts parts, const std::string& origin);

  std::vector<TokenId> Encode(const std::vector<TextPiece>& pieces) const override;
  using Tokenizer::Encode;
  std::string_view TokenText(TokenId id, bool special, std::string* scratch) const override;
  uint32_t vocab_size() const override { return p_.vocab.size(); }
  TokenKind kind(TokenId id) const override;
  TokenId FindToken(std::string_view text) const override;
  uint64_t memory_bytes() const override;
  bool strips_first_space() const override { return p_.strip_first_space; }
  // Words beyond this many bytes are merged window by window; for tests, before the first Encode.
  void SetWordWindow(size_t bytes) { window_bytes_ = bytes; }

 private:
  struct Job;  // one Encode call
  explicit BpeTokenizer(Parts parts) : p_(std::move(parts)) {}
  void FindSpaceJoints();
  void EncodeStretch(std::string_view text, const KindMap& kinds, bool first, Job* job) const;
  void EncodePlain(std::string_view text, bool first, Job* job) const;
  void EncodePiece(std::string_view piece, Job* job) const;
  void EncodeSpacePiece(std::string_view piece, Job* job) const;
  void EncodeWord(std::string_view word, Job* job) const;
  bool EncodeWindows(std::string_view word, size_t window, Job* job) const;
  size_t WindowCut(std::string_view part, const std::vector<BpeSymbol>& symbols) const;
  void MergeWord(std::string_view word, Job* job) const;
  void StartSymbols(std::string_view word, Job* job) const;
  void AddUnknown(size_t begin, size_t bytes, bool* last_unknown, Job* job) const;
  BpePair ScorePair(std::string_view joined) const;
  void EmitSymbols(std::string_view word, size_t count, Job* job) const;

  Parts p_;
  // kSpaceMark: byte values that stand directly before a space inside some token. Anywhere else a
  // word can be cut before its space without changing a merge, which keeps words short.
  std::array<bool, 256> joins_space_ = {};
  size_t window_bytes_ = 32 * 1024;  // 1 MB of scratch, whatever the word
};

}  // namespace sluice::text
