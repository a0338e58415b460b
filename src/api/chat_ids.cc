#include "api/chat_ids.h"

#include <algorithm>
#include <string>

namespace sluice {
namespace {

// One past the run of ids from `at` on that are no control tokens.
size_t RunEnd(const Tokenizer& tokens, std::span<const TokenId> ids, size_t at) {
  while (at < ids.size() && tokens.kind(ids[at]) != TokenKind::kControl) ++at;
  return at;
}

std::string BytesOf(const Tokenizer& tokens, std::span<const TokenId> ids) {
  std::string bytes, scratch;
  for (TokenId id : ids) bytes += tokens.TokenText(id, /*special=*/false, &scratch);
  return bytes;
}

}  // namespace

std::vector<TokenId> KeepKnownIds(const Tokenizer& tokens, std::span<const TokenId> known,
                                  std::vector<TokenId> rendered) {
  std::vector<TokenId> out;
  const std::span<const TokenId> now = rendered;
  size_t k = 0, r = 0;
  bool changed = false;
  while (k < known.size() && r < now.size()) {
    const size_t k_end = RunEnd(tokens, known, k), r_end = RunEnd(tokens, now, r);
    const auto mine = known.subspan(k, k_end - k), theirs = now.subspan(r, r_end - r);
    const bool same = std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    if (!same && BytesOf(tokens, mine) != BytesOf(tokens, theirs)) break;
    changed = changed || !same;
    out.insert(out.end(), mine.begin(), mine.end());
    k = k_end;
    r = r_end;
    if (k == known.size() || r == now.size() || known[k] != now[r]) break;
    out.push_back(known[k]);
    ++k, ++r;
  }
  if (!changed) return rendered;
  out.insert(out.end(), now.begin() + static_cast<std::ptrdiff_t>(r), now.end());
  return out;
}

}  // namespace sluice
