// Any bytes through encoding and decoding, for a byte-level and a SentencePiece vocabulary: nothing
// is lost, user text gives no control token, decoding is valid UTF-8.
#include <cstdint>
#include <cstdlib>

#include "tests/text/tok_support.h"

using sluice::PieceKind;
using sluice::TextPiece;
using sluice::TokenId;
using sluice::Tokenizer;

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void TryOne(const Tokenizer& t, std::string_view text, size_t cut) {
  std::string back, scratch;
  for (TokenId id : t.Encode(text, false, false)) {
    Check(t.kind(id) != sluice::TokenKind::kControl);
    back += t.TokenText(id, true, &scratch);
  }
  // A literal mark and a space are the same thing to SentencePiece.
  if (text.find("\xE2\x96\x81") == std::string_view::npos) Check(back == text);
  const std::vector<TokenId> ids =
      t.Encode({{PieceKind::kMarkup, text.substr(0, cut)}, {PieceKind::kText, text.substr(cut)}});
  Check(sluice::text::IsValidUtf8(t.Decode(ids)));
  sluice::StreamDecoder stream(&t, true);
  for (TokenId id : ids) Check(sluice::text::IsValidUtf8(stream.Push(id)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto byte_level = sluice::testing::ByteLevelSource().Build();
  static const auto scores = [] {
    sluice::testing::ListSource s = sluice::testing::ScoreSource();
    s.add_space_prefix = false;
    return s.Build();
  }();
  Check(byte_level.ok() && scores.ok());
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = text.empty() ? 0 : data[0] * text.size() / 256;
  TryOne(*byte_level.value(), text, cut);
  TryOne(*scores.value(), text, cut);
  return 0;
}
