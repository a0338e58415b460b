#include "text/split_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

bool StandsForItself(uint32_t b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

struct ByteAlphabet {
  std::array<uint16_t, 256> mapped;
  std::array<int16_t, 512> byte;
  ByteAlphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t c = StandsForItself(b) ? b : next++;
      mapped[b] = static_cast<uint16_t>(c);
      byte[c] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

uint32_t ByteToMapped(uint8_t byte) { return Alphabet().mapped[byte]; }
int MappedToByte(uint32_t c) { return c < 512 ? Alphabet().byte[c] : -1; }

// Tree -> ordered threads (Thompson) -> table (subset construction that keeps the order).
class SplitCompiler {
 public:
  explicit SplitCompiler(RegexTree tree) : tree_(std::move(tree)) {}

  Result<SplitRegex> Run(std::string_view pattern) {
    const uint32_t match = AddThread({Thread::kMatch});
    const uint32_t start = Lower(tree_.root, match);
    if (ok_) BuildClasses();
    if (ok_) BuildTable(start);
    if (!ok_) {
      return Status(Code::kBadModel, "unsupported regular expression: too many states",
                    fmt::format("'{}'", ToValidUtf8(pattern.substr(0, 400))));
    }
    return std::move(out_);
  }

 private:
  struct Thread {
    enum Kind : uint8_t { kMatch, kSet, kAhead, kSplit } kind;
    uint32_t set = 0;
    bool or_end = false;
    uint32_t next = 0, other = 0;  // kSplit tries next first
  };
  using State = std::vector<uint16_t>;

  uint32_t AddThread(Thread t) {
    if (threads_.size() >= 16384) {
      ok_ = false;
      return 0;
    }
    threads_.push_back(t);
    return static_cast<uint32_t>(threads_.size() - 1);
  }

  // The first thread of `node` when `next` follows it. Depth is that of the tree, which is capped.
  uint32_t Lower(uint32_t index, uint32_t next) {
    if (!ok_) return 0;
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case RegexNode::kEmpty:
        return next;
      case RegexNode::kSet:
        return AddThread({Thread::kSet, node.set, false, next, 0});
      case RegexNode::kAhead:
        return AddThread({Thread::kAhead, node.set, node.or_end, next, 0});
      case RegexNode::kConcat: {
        for (size_t i = node.children.size(); i-- > 0;) next = Lower(node.children[i], next);
        return next;
      }
      case RegexNode::kAlternate: {
        uint32_t rest = Lower(node.children.back(), next);
        for (size_t i = node.children.size() - 1; i-- > 0;) {
          const uint32_t option = Lower(node.children[i], next);
          rest = AddThread({Thread::kSplit, 0, false, option, rest});
        }
        return rest;
      }
      case RegexNode::kRepeat:
        return LowerRepeat(node, next);
    }
    return next;
  }

  uint32_t AddChoice(bool greedy, uint32_t body, uint32_t skip) {
    return greedy ? AddThread({Thread::kSplit, 0, false, body, skip})
                  : AddThread({Thread::kSplit, 0, false, skip, body});
  }

  uint32_t LowerRepeat(const RegexNode& node, uint32_t next) {
    const uint32_t body = node.children[0];
    uint32_t at = next;
    if (node.max == kRepeatNoLimit) {
      const uint32_t loop = AddChoice(node.greedy, 0, next);
      const uint32_t inside = Lower(body, loop);
      if (!ok_) return 0;
      (node.greedy ? threads_[loop].next : threads_[loop].other) = inside;
      at = loop;
    } else {
      for (uint32_t i = node.min; i < node.max && ok_; ++i) {
        at = AddChoice(node.greedy, Lower(body, at), next);
      }
    }
    for (uint32_t i = 0; i < node.min && ok_; ++i) at = Lower(body, at);
    return at;
  }

  // Characters that no set of the pattern tells apart share a class.
  void BuildClasses() {
    std::map<uint32_t, uint64_t> flips;  // code point -> sets that begin or end there
    flips[0] = 0;
    for (size_t s = 0; s < tree_.sets.size(); ++s) {
      for (const CharRange& r : tree_.sets[s]) {
        flips[r.lo] ^= uint64_t{1} << s;
        if (r.hi < kCodePointMax) flips[r.hi + 1] ^= uint64_t{1} << s;
      }
    }
    std::map<uint64_t, uint8_t> class_of;
    std::vector<std::pair<uint32_t, uint8_t>> runs;  // first code point, class
    uint64_t signature = 0;
    for (const auto& [first, flip] : flips) {
      signature ^= flip;
      auto [it, fresh] = class_of.try_emplace(signature, static_cast<uint8_t>(class_of.size()));
      if (fresh && class_of.size() > 250) ok_ = false;
      if (fresh) signatures_.push_back(signature);
      runs.emplace_back(first, it->second);
    }
    if (ok_) FillBlocks(runs);
  }

  void FillBlocks(const std::vector<std::pair<uint32_t, uint8_t>>& runs) {
    std::unordered_map<std::string, uint16_t> known;
    size_t run = 0;
    std::string block(128, '\0');
    for (uint32_t first = 0; first <= kCodePointMax; first += 128) {
      for (uint32_t i = 0; i < 128; ++i) {
        while (run + 1 < runs.size() && runs[run + 1].first <= first + i) ++run;
        block[i] = static_cast<char>(runs[run].second);
      }
      auto [it, fresh] = known.try_emplace(block, static_cast<uint16_t>(known.size()));
      if (fresh) out_.class_blocks_.insert(out_.class_blocks_.end(), block.begin(), block.end());
      out_.block_of_.push_back(it->second);
    }
    out_.class_blocks_.shrink_to_fit();
    out_.block_of_.shrink_to_fit();
    for (uint32_t b = 0; b < 256; ++b) {
      out_.byte_class_[b] =
          static_cast<uint8_t>(out_.ClassOf(ByteToMapped(static_cast<uint8_t>(b))));
    }
  }

  // One column of one state: threads are followed in order of preference; what comes behind a match
  // is cut.
  uint16_t Step(const State& state, uint32_t char_class) {
    const bool at_end = char_class == signatures_.size();
    const uint64_t signature = at_end ? 0 : signatures_[char_class];
    auto holds = [&](const Thread& t) { return at_end ? t.or_end : (signature >> t.set & 1) != 0; };
    seen_.assign(threads_.size(), 0);
    queued_.assign(threads_.size(), 0);
    State next;
    uint16_t match_bit = 0;
    for (size_t i = 0; i < state.size() && !match_bit; ++i) {
      stack_.assign(1, state[i]);
      while (!stack_.empty() && !match_bit) {
        const uint32_t id = stack_.back();
        stack_.pop_back();
        if (seen_[id]) continue;
        seen_[id] = 1;
        const Thread& t = threads_[id];
        if (t.kind == Thread::kMatch) {
          match_bit = SplitRegex::kMatchBit;
        } else if (t.kind == Thread::kSplit) {
          stack_.push_back(t.other);
          stack_.push_back(t.next);
        } else if (t.kind == Thread::kAhead) {
          if (holds(t)) stack_.push_back(t.next);
        } else if (!at_end && holds(t) && !queued_[t.next]) {
          queued_[t.next] = 1;
          next.push_back(static_cast<uint16_t>(t.next));
        }
      }
    }
    return static_cast<uint16_t>(StateIndex(std::move(next)) | match_bit);
  }

  uint16_t StateIndex(State state) {
    auto it = index_.find(state);
    if (it != index_.end()) return it->second;
    if (states_.size() >= kSplitStatesMax) {
      ok_ = false;
      return 0;
    }
    const auto id = static_cast<uint16_t>(states_.size());
    index_.emplace(state, id);
    states_.push_back(std::move(state));
    return id;
  }

  void BuildTable(uint32_t start) {
    StateIndex({});  // kDead
    StateIndex({static_cast<uint16_t>(start)});
    out_.stride_ = static_cast<uint32_t>(signatures_.size() + 1);
    for (size_t s = 0; s < states_.size() && ok_; ++s) {
      const State state = states_[s];  // copied: states_ grows
      for (uint32_t c = 0; c < out_.stride_ && ok_; ++c) out_.table_.push_back(Step(state, c));
    }
    out_.table_.shrink_to_fit();
  }

  RegexTree tree_;
  bool ok_ = true;
  std::vector<Thread> threads_;
  std::vector<uint64_t> signatures_;  // class -> sets it belongs to
  std::vector<State> states_;
  std::map<State, uint16_t> index_;
  std::vector<uint8_t> seen_, queued_;
  std::vector<uint32_t> stack_;
  SplitRegex out_;
};

Result<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  SLUICE_ASSIGN(RegexTree tree, ParseRegex(pattern));
  return SplitCompiler(std::move(tree)).Run(pattern);
}

// States a failed scan went through, by position: reaching one of them again means failing again.
struct SplitRegex::Trace {
  static constexpr size_t kQuietChars = 32;  // short failures are cheaper than remembering them
  size_t begin = 0;
  std::vector<uint16_t> states;  // 0: nothing known
  std::vector<uint16_t> path;    // of the scan under way
  bool Known(size_t at, uint16_t state) const {
    return at >= begin && at - begin < states.size() && states[at - begin] == state;
  }
};

template <bool kMapped>
size_t SplitRegex::MatchAt(std::string_view text, size_t at, Trace* trace) const {
  const char* end = text.data() + text.size();
  const uint32_t end_class = stride_ - 1;
  uint16_t state = kStart;
  size_t pos = at, matched = at, chars = 0, path_begin = 0;
  trace->path.clear();
  while (true) {
    if (pos == text.size()) {
      if (table_[state * stride_ + end_class] & kMatchBit) matched = pos;
      break;
    }
    uint32_t char_class, bytes = 1;
    const auto first = static_cast<uint8_t>(text[pos]);
    if constexpr (kMapped) {
      char_class = byte_class_[first];
    } else if (first < 0x80) {
      char_class = class_blocks_[static_cast<size_t>(block_of_[0]) << 7 | first];
    } else {
      const DecodedChar c = DecodeUtf8(text.data() + pos, end);
      char_class = ClassOf(c.value);
      bytes = c.bytes;
    }
    const uint16_t entry = table_[state * stride_ + char_class];
    if (entry & kMatchBit) matched = pos;
    state = entry & static_cast<uint16_t>(~kMatchBit);
    if (state == kDead) break;
    pos += bytes;
    if (++chars < Trace::kQuietChars || matched != at) continue;
    if (trace->Known(pos, state)) return 0;
    if (trace->path.empty()) path_begin = pos;
    trace->path.resize(pos - path_begin, 0);
    trace->path.push_back(state);
  }
  if (matched == at && !trace->path.empty()) {
    trace->begin = path_begin;
    trace->states.swap(trace->path);
  }
  return matched - at;
}

template <bool kMapped>
void SplitRegex::SplitAs(std::string_view text, FunctionRef<void(size_t, size_t, bool)> out) const {
  Trace trace;
  size_t gap = 0, pos = 0;
  const char* end = text.data() + text.size();
  while (pos < text.size()) {
    const size_t bytes = MatchAt<kMapped>(text, pos, &trace);
    if (bytes == 0) {
      pos += kMapped ? 1 : DecodeUtf8(text.data() + pos, end).bytes;
      continue;
    }
    if (gap < pos) out(gap, pos, false);
    out(pos, pos + bytes, true);
    pos += bytes;
    gap = pos;
  }
  if (gap < text.size()) out(gap, text.size(), false);
}

void SplitRegex::Split(std::string_view text, bool mapped,
                       FunctionRef<void(size_t begin, size_t end, bool match)> out) const {
  if (mapped) {
    SplitAs<true>(text, out);
  } else {
    SplitAs<false>(text, out);
  }
}

uint64_t SplitRegex::memory_bytes() const {
  return table_.capacity() * sizeof(uint16_t) + block_of_.capacity() * sizeof(uint16_t) +
         class_blocks_.capacity() + sizeof(*this);
}

}  // namespace sluice::text
