#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <bit>

#include "text/unicode.h"

namespace sluice::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// An unsigned key that sorts the highest score first.
uint32_t ScoreKey(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, UINT32_MAX - 1);
}

}  // namespace

struct BpeTokenizer::Job {
  std::vector<TokenId> ids;
  BpeScratch bpe;
  std::string normal, prefixed, spaced;  // buffers, one per stage
};

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Make(Parts parts, const std::string& origin) {
  std::unique_ptr<BpeTokenizer> t(new BpeTokenizer(std::move(parts)));
  Parts& p = t->p_;
  p.vocab.Finish(p.spelling);
  if (p.rule == MergeRule::kScore && p.scores.size() != p.vocab.size()) {
    return Status(Code::kBadModel,
                  fmt::format("{} scores for {} tokens", p.scores.size(), p.vocab.size()), origin);
  }
  p.merges.Filter([&p](TokenId merged) {
    const TokenKind k = p.vocab.kind(merged);
    return k != TokenKind::kControl && k != TokenKind::kUnknown;
  });
  p.merges.Finish();
  std::string buffer;
  p.added.Finish(
      [&](std::string_view content) { return std::string(p.normalizer.Apply(content, &buffer)); });
  if (p.spelling == Spelling::kSpaceMark) t->FindSpaceJoints();
  return t;
}

void BpeTokenizer::FindSpaceJoints() {
  for (TokenId id = 0; id < static_cast<TokenId>(p_.vocab.size()); ++id) {
    const std::string_view s = p_.vocab.text(id);
    const TokenKind k = p_.vocab.kind(id);
    if (k == TokenKind::kControl || k == TokenKind::kUnknown || k == TokenKind::kByte) continue;
    for (size_t i = 1; i < s.size(); ++i) {
      if (s[i] == ' ' && s[i - 1] != ' ') joins_space_[static_cast<uint8_t>(s[i - 1])] = true;
    }
  }
}

std::vector<TokenId> BpeTokenizer::Encode(const std::vector<TextPiece>& pieces) const {
  KindMap kinds;
  for (const TextPiece& piece : pieces) kinds.Append(piece.kind, piece.text.size());
  std::string joined;
  std::string_view all = pieces.size() == 1 ? pieces[0].text : std::string_view();
  if (pieces.size() > 1) {
    joined.reserve(kinds.size());
    for (const TextPiece& piece : pieces) joined += piece.text;
    all = joined;
  }
  Job job;
  p_.added.Split(all, kinds, false, [&](size_t begin, size_t end, TokenId id) {
    if (id >= 0) {
      job.ids.push_back(id);
    } else {
      EncodeStretch(all.substr(begin, end - begin), kinds.Slice(begin, end - begin), begin == 0,
                    &job);
    }
  });
  return std::move(job.ids);
}

void BpeTokenizer::EncodeStretch(std::string_view raw, const KindMap& kinds, bool first,
                                 Job* job) const {
  const std::string_view normal = p_.normalizer.Apply(raw, &job->normal);
  if (!p_.added.has(true)) return EncodePlain(normal, first, job);
  // Which part of the normalised text is markup: exact when the runs normalise independently, else
  // none.
  KindMap after;
  if (normal.data() == raw.data() || kinds.uniform()) {
    if (!kinds.runs().empty())
      after.Append(kinds.runs()[0].kind, kinds.uniform() ? normal.size() : 0);
    if (!kinds.uniform()) after = kinds;
  } else {
    std::string together, buffer;
    size_t begin = 0;
    for (const KindMap::Run& run : kinds.runs()) {
      const std::string_view part =
          p_.normalizer.Apply(raw.substr(begin, run.end - begin), &buffer);
      after.Append(run.kind, part.size());
      together += part;
      begin = run.end;
    }
    if (together != normal) {
      after = KindMap();
      after.Append(PieceKind::kText, normal.size());
    }
  }
  p_.added.Split(normal, after, true, [&](size_t begin, size_t end, TokenId id) {
    if (id >= 0) {
      job->ids.push_back(id);
    } else {
      EncodePlain(normal.substr(begin, end - begin), first && begin == 0, job);
    }
  });
}

void BpeTokenizer::EncodePlain(std::string_view text, bool first, Job* job) const {
  std::string replaced;
  bool prefix = p_.prefix_space && !text.empty() && text[0] != ' ';
  if (p_.metaspace != Parts::Metaspace::kOff) {
    if (text.find(kSpaceMark) != std::string_view::npos) {
      replaced = ReplaceAll(text, kSpaceMark, " ");
      text = replaced;
    }
    const bool want = p_.metaspace == Parts::Metaspace::kAlways ||
                      (p_.metaspace == Parts::Metaspace::kFirst && first);
    prefix = want && (text.empty() || text[0] != ' ');
  }
  if (prefix) {
    job->prefixed.reserve(text.size() + 1);
    job->prefixed = " ";
    job->prefixed += text;
    text = job->prefixed;
  }
  p_.pre.Run(text, [&](std::string_view piece) { EncodePiece(piece, job); });
}

void BpeTokenizer::EncodePiece(std::string_view piece, Job* job) const {
  if (p_.spelling == Spelling::kSpaceMark) {
    EncodeSpacePiece(piece, job);
  } else {
    EncodeWord(piece, job);
  }
}

void BpeTokenizer::EncodeSpacePiece(std::string_view piece, Job* job) const {
  if (piece.find(kSpaceMark) != std::string_view::npos) {
    job->spaced = ReplaceAll(piece, kSpaceMark, " ");
    piece = job->spaced;
  }
  if (p_.ignore_merges) {
    const TokenId whole = p_.vocab.Find(piece);
    if (whole >= 0) {
      job->ids.push_back(whole);
      return;
    }
  }
  size_t begin = 0;
  for (size_t i = 1; i < piece.size(); ++i) {
    if (piece[i] != ' ' || piece[i - 1] == ' ' || joins_space_[static_cast<uint8_t>(piece[i - 1])])
      continue;
    EncodeWord(piece.substr(begin, i - begin), job);
    begin = i;
  }
  EncodeWord(piece.substr(begin), job);
}

void BpeTokenizer::EncodeWord(std::string_view word, Job* job) const {
  if (p_.ignore_merges && p_.spelling == Spelling::kByteLevel) {
    const TokenId whole = p_.vocab.Find(word);
    if (whole >= 0) {
      job->ids.push_back(whole);
      return;
    }
  }
  for (size_t window = window_bytes_; window < word.size(); window *= 2) {
    if (EncodeWindows(word, window, job)) return;
  }
  MergeWord(word, job);
  EmitSymbols(word, job->bpe.symbols.size(), job);
}

// Merges one window after the other, each beginning with the token behind the last one kept. That
// gives the ids of the whole word: tokens t1 t2 ... are its encoding exactly when every pair of
// neighbours, taken alone, encodes to itself (a merge across a border depends on the tokens beside
// it only, and merges elsewhere do not change their order). Pairs inside a window do, being cut out
// of its encoding; the pair at a seam was inside the window before, provided that the next window
// begins with the token expected there. If it does not, false and nothing is emitted: the end of
// the window reached back beyond its last eighth, and a larger one is due.
bool BpeTokenizer::EncodeWindows(std::string_view word, size_t window, Job* job) const {
  const size_t ids_before = job->ids.size();
  BpeSymbol expected;
  for (size_t begin = 0;;) {
    const std::string_view part = word.substr(begin, window);
    MergeWord(part, job);
    std::vector<BpeSymbol>& symbols = job->bpe.symbols;
    std::erase_if(symbols, [](const BpeSymbol& s) { return s.size == 0; });
    const bool seam =
        expected.size == 0 || (!symbols.empty() && symbols[0].begin == 0 &&
                               symbols[0].size == expected.size && symbols[0].id == expected.id);
    const bool last = begin + part.size() == word.size();
    const size_t cut = last ? symbols.size() : WindowCut(part, symbols);
    if (!seam || (!last && cut == 0)) {
      job->ids.resize(ids_before);
      return false;
    }
    EmitSymbols(part, cut, job);
    if (last) return true;
    expected = symbols[cut];
    if (begin == 0) {  // once, for as many ids as the rest will give if it is like this part
      const size_t got = job->ids.size() - ids_before;
      job->ids.reserve(job->ids.size() + (word.size() / expected.begin + 1) * got);
    }
    begin += expected.begin;
  }
}

// How many symbols of a window to keep: up to its last eighth, whole characters; 0 when there is no
// such place.
size_t BpeTokenizer::WindowCut(std::string_view part, const std::vector<BpeSymbol>& symbols) const {
  for (size_t i = symbols.size(); i-- > 1;) {
    const uint32_t begin = symbols[i].begin;
    if (begin > part.size() - part.size() / 8) continue;
    const bool inside = (static_cast<uint8_t>(part[begin]) & 0xC0) == 0x80;
    if (p_.spelling == Spelling::kByteLevel || !inside) return i;
  }
  return 0;
}

void BpeTokenizer::MergeWord(std::string_view word, Job* job) const {
  job->bpe.Clear(word.size());
  StartSymbols(word, job);
  if (p_.rule == MergeRule::kRank) {
    job->bpe.Merge([this](const BpeSymbol& a, const BpeSymbol& b) -> BpePair {
      const uint32_t rank = p_.merges.Find(a.id, b.id);
      return rank == UINT32_MAX ? BpePair{} : BpePair{rank, p_.merges.merged(rank)};
    });
  } else {
    job->bpe.Merge([this, word](const BpeSymbol& a, const BpeSymbol& b) {
      return ScorePair(word.substr(a.begin, static_cast<size_t>(a.size) + b.size));
    });
  }
}

BpePair BpeTokenizer::ScorePair(std::string_view joined) const {
  const TokenId id = p_.vocab.Find(joined);
  return id < 0 ? BpePair{} : BpePair{ScoreKey(p_.scores[static_cast<size_t>(id)]), id};
}

void BpeTokenizer::StartSymbols(std::string_view word, Job* job) const {
  bool last_unknown = false;
  if (p_.spelling == Spelling::kByteLevel) {
    for (size_t i = 0; i < word.size(); ++i) {
      const TokenId id = p_.vocab.byte_token(static_cast<uint8_t>(word[i]));
      if (id < 0) {
        AddUnknown(i, 1, &last_unknown, job);
        continue;
      }
      last_unknown = false;
      job->bpe.Add(static_cast<uint32_t>(i), 1, id);
    }
    return;
  }
  const char* end = word.data() + word.size();
  for (size_t i = 0; i < word.size();) {
    const uint32_t bytes = DecodeUtf8(word.data() + i, end).bytes;
    const TokenId id = p_.vocab.Find(word.substr(i, bytes));
    bool in_bytes = id < 0 && p_.byte_fallback && p_.rule == MergeRule::kRank;
    for (uint32_t b = 0; b < bytes && in_bytes; ++b) {
      in_bytes = p_.vocab.byte_token(static_cast<uint8_t>(word[i + b])) >= 0;
    }
    if (id >= 0 || p_.rule == MergeRule::kScore) {
      job->bpe.Add(static_cast<uint32_t>(i), bytes, id);
    } else if (in_bytes) {
      for (size_t b = i; b < i + bytes; ++b) {
        job->bpe.Add(static_cast<uint32_t>(b), 1,
                     p_.vocab.byte_token(static_cast<uint8_t>(word[b])));
      }
    } else {
      AddUnknown(i, bytes, &last_unknown, job);
      i += bytes;
      continue;
    }
    last_unknown = false;
    i += bytes;
  }
}

// Without an unknown token such text has no ids (as in the reference).
void BpeTokenizer::AddUnknown(size_t begin, size_t bytes, bool* last_unknown, Job* job) const {
  if (p_.unknown < 0) return;
  if (*last_unknown && p_.fuse_unknown) {
    job->bpe.symbols.back().size += static_cast<uint32_t>(bytes);
  } else {
    job->bpe.Add(static_cast<uint32_t>(begin), static_cast<uint32_t>(bytes), p_.unknown);
  }
  *last_unknown = true;
}

void BpeTokenizer::EmitSymbols(std::string_view word, size_t count, Job* job) const {
  for (size_t at = 0; at < count; ++at) {
    const BpeSymbol& s = job->bpe.symbols[at];
    if (s.size == 0) continue;
    if (s.id >= 0) {
      job->ids.push_back(s.id);
      continue;
    }
    for (uint32_t i = 0; i < s.size; ++i) {
      const TokenId byte = p_.vocab.byte_token(static_cast<uint8_t>(word[s.begin + i]));
      if (byte >= 0) {
        job->ids.push_back(byte);
      } else if (p_.unknown >= 0) {
        job->ids.push_back(p_.unknown);
        break;  // one for the whole character
      }
    }
  }
}

std::string_view BpeTokenizer::TokenText(TokenId id, bool special, std::string* /*scratch*/) const {
  if (id < 0 || static_cast<uint32_t>(id) >= p_.vocab.size()) return {};
  const TokenKind k = p_.vocab.kind(id);
  if (!special && (k == TokenKind::kControl || k == TokenKind::kUnknown)) return {};
  return p_.vocab.text(id);
}

TokenKind BpeTokenizer::kind(TokenId id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= p_.vocab.size()) return TokenKind::kUnknown;
  return p_.vocab.kind(id);
}

TokenId BpeTokenizer::FindToken(std::string_view text) const {
  TokenId id = p_.added.Find(text);
  if (id < 0 && p_.added.has(true)) {
    std::string buffer;
    id = p_.added.Find(p_.normalizer.Apply(text, &buffer));
  }
  return id >= 0 ? id : p_.vocab.Find(text);
}

uint64_t BpeTokenizer::memory_bytes() const {
  return p_.vocab.memory_bytes() + p_.merges.memory_bytes() + p_.scores.capacity() * sizeof(float) +
         p_.added.memory_bytes() + p_.pre.memory_bytes() + sizeof(*this);
}

}  // namespace sluice::text
