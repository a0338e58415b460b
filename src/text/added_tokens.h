// Added tokens (control and user-defined ones) and the search that cuts them out of text before
// anything else happens to it.
//
// Contract: built once, then immutable and safe to share. Search is leftmost-longest over a byte
// trie. A control token is found only where the whole match lies in markup; other added tokens are
// found anywhere, as in the reference tokenizers. Where the longest match is not allowed, a shorter
// allowed one is taken.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer.h"

namespace sluice::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool control = false;                 // never out of user text
  bool single_word = false;             // only between characters that are no word characters
  bool lstrip = false, rstrip = false;  // swallows white space beside it
  bool normalized = false;              // searched for in normalised text
};

// Which bytes of a text are markup: ends of alternating runs, in order.
class KindMap {
 public:
  void Append(PieceKind kind, size_t bytes);
  // One past the last byte of the markup run that holds `at`; `at` itself when it is user text.
  size_t MarkupEnd(size_t at) const;
  size_t size() const { return runs_.empty() ? 0 : runs_.back().end; }
  // The same map for text[begin, begin + bytes).
  KindMap Slice(size_t begin, size_t bytes) const;
  bool uniform() const { return runs_.size() <= 1; }

  struct Run {
    size_t end;
    PieceKind kind;
  };
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::vector<Run> runs_;
};

class AddedTokens {
 public:
  void Add(const AddedToken& token) { list_.push_back(token); }
  // norm(content) is what a `normalized` token is searched as.
  void Finish(FunctionRef<std::string(std::string_view)> norm);

  // Calls out(begin, end, id) for stretches of text (id -1) and tokens, in order, nothing empty.
  void Split(std::string_view text, const KindMap& kinds, bool normalized,
             FunctionRef<void(size_t begin, size_t end, TokenId id)> out) const;

  bool has(bool normalized) const { return !tries_[normalized].nodes.empty(); }
  TokenId Find(std::string_view content) const;      // exact, -1
  std::vector<AddedToken>& list() { return list_; }  // before Finish
  uint64_t memory_bytes() const;

 private:
  struct Node {
    int32_t child = -1, sibling = -1;
    int32_t entry = -1;
    uint8_t byte = 0;
  };
  struct Entry {
    TokenId id;
    bool control, single_word, lstrip, rstrip;
  };
  struct Trie {
    std::vector<Node> nodes;
    std::array<int32_t, 256> roots;
  };
  struct Match {
    size_t bytes = 0;
    int32_t entry = -1;
  };
  int32_t Child(const Trie& trie, int32_t node, uint8_t byte) const;
  void Insert(Trie* trie, std::string_view key, int32_t entry);
  Match Longest(const Trie& trie, std::string_view text, size_t at, size_t markup_end) const;

  std::vector<AddedToken> list_;  // released by Finish
  std::vector<Entry> entries_;
  Trie tries_[2];
};

}  // namespace sluice::text
