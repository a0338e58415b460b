#include "text/tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace sluice {

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool special, bool add_bos) const {
  std::vector<TokenId> ids =
      Encode({TextPiece{special ? PieceKind::kMarkup : PieceKind::kText, text}});
  if (!add_bos || !special_.add_bos) return ids;
  std::vector<TokenId> prefix = special_.prefix;
  if (prefix.empty() && special_.bos >= 0) prefix.push_back(special_.bos);
  if (prefix.empty() || (!ids.empty() && ids[0] == prefix[0])) return ids;
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return ids;
}

std::string Tokenizer::Decode(const std::vector<TokenId>& ids, bool special) const {
  std::string out, bytes, scratch;
  // A run of byte tokens that is no UTF-8 is one U+FFFD per token.
  auto flush = [&] {
    if (text::IsValidUtf8(bytes)) {
      out += bytes;
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) text::AppendUtf8(text::kReplacement, &out);
    }
    bytes.clear();
  };
  for (TokenId id : ids) {
    const std::string_view piece = TokenText(id, special, &scratch);
    if (kind(id) == TokenKind::kByte) {
      bytes += piece;
      continue;
    }
    flush();
    out += piece;
  }
  flush();
  if (!text::IsValidUtf8(out)) out = text::ToValidUtf8(out);
  if (strips_first_space() && !out.empty() && out[0] == ' ') out.erase(0, 1);
  return out;
}

std::string StreamDecoder::Push(TokenId id) {
  std::string scratch;
  std::string_view piece = tokenizer_->TokenText(id, special_, &scratch);
  if (piece.empty()) return {};
  if (first_ && tokenizer_->strips_first_space() && piece[0] == ' ') piece.remove_prefix(1);
  first_ = false;
  pending_ += piece;
  std::string out;
  const char* p = pending_.data();
  const char* end = p + pending_.size();
  while (p < end) {
    const text::DecodedChar c = text::DecodeUtf8(p, end);
    if (c.truncated) break;
    if (c.valid) out.append(p, c.bytes);
    p += c.bytes;
  }
  pending_.erase(0, static_cast<size_t>(p - pending_.data()));
  return out;
}

std::string StreamDecoder::Flush() {
  pending_.clear();
  return {};
}

}  // namespace sluice
