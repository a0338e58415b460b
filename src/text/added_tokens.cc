#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace sluice::text {
namespace {

// The last character before `at`, or broken.
DecodedChar CharBefore(std::string_view text, size_t at) {
  for (size_t n = 1; n <= 4 && n <= at; ++n) {
    const DecodedChar c = DecodeUtf8(text.data() + at - n, text.data() + at);
    if (c.valid && c.bytes == n) return c;
  }
  return {};
}

bool WordBefore(std::string_view text, size_t at) {
  const DecodedChar c = at > 0 ? CharBefore(text, at) : DecodedChar{};
  return c.valid && Contains(UnicodeWordSet(), c.value);
}

bool WordAfter(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  const DecodedChar c = DecodeUtf8(text.data() + at, text.data() + text.size());
  return c.valid && Contains(UnicodeWordSet(), c.value);
}

size_t SkipSpaceBack(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const DecodedChar c = CharBefore(text, at);
    if (!c.valid || at - floor < c.bytes || !Contains(WhitespaceSet(), c.value)) break;
    at -= c.bytes;
  }
  return at;
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size()) {
    const DecodedChar c = DecodeUtf8(text.data() + at, text.data() + text.size());
    if (!c.valid || !Contains(WhitespaceSet(), c.value)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

void KindMap::Append(PieceKind kind, size_t bytes) {
  if (bytes == 0) return;
  if (!runs_.empty() && runs_.back().kind == kind) {
    runs_.back().end += bytes;
  } else {
    runs_.push_back({size() + bytes, kind});
  }
}

size_t KindMap::MarkupEnd(size_t at) const {
  auto it = std::upper_bound(runs_.begin(), runs_.end(), at,
                             [](size_t value, const Run& run) { return value < run.end; });
  return it != runs_.end() && it->kind == PieceKind::kMarkup ? it->end : at;
}

KindMap KindMap::Slice(size_t begin, size_t bytes) const {
  KindMap out;
  size_t from = begin;
  for (const Run& run : runs_) {
    if (run.end <= from) continue;
    if (from >= begin + bytes) break;
    const size_t to = std::min(run.end, begin + bytes);
    out.Append(run.kind, to - from);
    from = to;
  }
  return out;
}

int32_t AddedTokens::Child(const Trie& trie, int32_t node, uint8_t byte) const {
  int32_t at = trie.nodes[static_cast<size_t>(node)].child;
  while (at >= 0 && trie.nodes[static_cast<size_t>(at)].byte != byte) {
    at = trie.nodes[static_cast<size_t>(at)].sibling;
  }
  return at;
}

void AddedTokens::Insert(Trie* trie, std::string_view key, int32_t entry) {
  int32_t at = -1;
  for (char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = at < 0 ? trie->roots[byte] : Child(*trie, at, byte);
    if (next < 0) {
      next = static_cast<int32_t>(trie->nodes.size());
      Node node;
      node.byte = byte;
      if (at < 0) {
        trie->roots[byte] = next;
      } else {
        node.sibling = trie->nodes[static_cast<size_t>(at)].child;
        trie->nodes[static_cast<size_t>(at)].child = next;
      }
      trie->nodes.push_back(node);
    }
    at = next;
  }
  if (at >= 0 && trie->nodes[static_cast<size_t>(at)].entry < 0) {
    trie->nodes[static_cast<size_t>(at)].entry = entry;
  }
}

void AddedTokens::Finish(FunctionRef<std::string(std::string_view)> norm) {
  for (Trie& trie : tries_) trie.roots.fill(-1);
  for (const AddedToken& t : list_) {
    const auto entry = static_cast<int32_t>(entries_.size());
    entries_.push_back({t.id, t.control, t.single_word, t.lstrip, t.rstrip});
    const std::string key = t.normalized ? norm(t.content) : t.content;
    Insert(&tries_[t.normalized], key, entry);
  }
  list_ = {};
  entries_.shrink_to_fit();
  for (Trie& trie : tries_) trie.nodes.shrink_to_fit();
}

AddedTokens::Match AddedTokens::Longest(const Trie& trie, std::string_view text, size_t at,
                                        size_t markup_end) const {
  Match best;
  int32_t node = trie.roots[static_cast<uint8_t>(text[at])];
  for (size_t n = 1; node >= 0; ++n) {
    const int32_t entry = trie.nodes[static_cast<size_t>(node)].entry;
    if (entry >= 0 && (!entries_[static_cast<size_t>(entry)].control || at + n <= markup_end)) {
      best = {n, entry};
    }
    if (at + n >= text.size()) break;
    node = Child(trie, node, static_cast<uint8_t>(text[at + n]));
  }
  return best;
}

void AddedTokens::Split(std::string_view text, const KindMap& kinds, bool normalized,
                        FunctionRef<void(size_t begin, size_t end, TokenId id)> out) const {
  const Trie& trie = tries_[normalized];
  size_t done = 0, at = 0;
  while (at < text.size() && !trie.nodes.empty()) {
    if (trie.roots[static_cast<uint8_t>(text[at])] < 0) {
      ++at;
      continue;
    }
    const Match match = Longest(trie, text, at, kinds.MarkupEnd(at));
    if (match.entry < 0) {
      ++at;
      continue;
    }
    const Entry& entry = entries_[static_cast<size_t>(match.entry)];
    size_t begin = at, end = at + match.bytes;
    at = end;
    if (entry.single_word && (WordBefore(text, begin) || WordAfter(text, end))) continue;
    if (entry.lstrip) begin = std::max(done, SkipSpaceBack(text, begin, std::min(begin, done)));
    // The search goes on behind the bare match, as in the reference: an added token that is white
    // space is found even where this one has swallowed it.
    if (entry.rstrip) end = SkipSpace(text, end);
    if (done < begin) out(done, begin, -1);
    out(begin, end, entry.id);
    done = end;
  }
  if (done < text.size()) out(done, text.size(), -1);
}

TokenId AddedTokens::Find(std::string_view content) const {
  for (const Trie& trie : tries_) {
    if (content.empty() || trie.nodes.empty()) continue;
    int32_t node = trie.roots[static_cast<uint8_t>(content[0])];
    for (size_t i = 1; i < content.size() && node >= 0; ++i) {
      node = Child(trie, node, static_cast<uint8_t>(content[i]));
    }
    if (node >= 0 && trie.nodes[static_cast<size_t>(node)].entry >= 0) {
      return entries_[static_cast<size_t>(trie.nodes[static_cast<size_t>(node)].entry)].id;
    }
  }
  return -1;
}

uint64_t AddedTokens::memory_bytes() const {
  uint64_t bytes = entries_.capacity() * sizeof(Entry) + sizeof(*this);
  for (const Trie& trie : tries_) bytes += trie.nodes.capacity() * sizeof(Node);
  return bytes;
}

}  // namespace sluice::text
