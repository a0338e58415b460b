#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::text {
namespace {

// Recursive descent, depth capped. Errors are kept in status_; the callers stop at the first one.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  Result<RegexTree> Run() {
    if (text_.size() > kRegexBytesMax) Fail("a pattern this long");
    tree_.root = Alternation(0, false);
    if (status_.ok() && pos_ < text_.size()) Fail("an unbalanced )");
    if (!status_.ok()) return status_;
    return std::move(tree_);
  }

 private:
  void Fail(std::string what) {
    if (!status_.ok()) return;
    status_ = Status(Code::kBadModel, "unsupported regular expression: " + what,
                     fmt::format("byte {} of '{}'", pos_, ToValidUtf8(text_.substr(0, 400))));
  }
  bool More() const { return status_.ok() && pos_ < text_.size(); }
  bool Eat(std::string_view token) {
    if (!status_.ok() || text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  uint32_t NextChar() {
    const DecodedChar c = DecodeUtf8(text_.data() + pos_, text_.data() + text_.size());
    if (!c.valid) Fail("bytes that are no UTF-8");
    pos_ += c.bytes;
    return c.value;
  }

  uint32_t Add(RegexNode node) {
    if (tree_.nodes.size() >= kRegexNodesMax) Fail("too many parts");
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  uint32_t SetIndex(CharSet set) {
    for (uint32_t i = 0; i < tree_.sets.size(); ++i) {
      if (tree_.sets[i] == set) return i;
    }
    if (tree_.sets.size() >= kRegexSetsMax) {
      Fail("too many character classes");
      return 0;
    }
    tree_.sets.push_back(std::move(set));
    return static_cast<uint32_t>(tree_.sets.size() - 1);
  }
  uint32_t AddSet(CharSet set) {
    RegexNode node;
    node.kind = RegexNode::kSet;
    node.set = SetIndex(std::move(set));
    return Add(std::move(node));
  }
  uint32_t AddAhead(CharSet set, bool or_end) {
    RegexNode node;
    node.kind = RegexNode::kAhead;
    node.set = SetIndex(std::move(set));
    node.or_end = or_end;
    return Add(std::move(node));
  }

  uint32_t Alternation(uint32_t depth, bool fold) {
    if (depth > kRegexDepthMax) {
      Fail("groups nested too deeply");
      return 0;
    }
    std::vector<uint32_t> options = {Concat(depth, fold)};
    while (Eat("|")) options.push_back(Concat(depth, fold));
    if (options.size() == 1) return options[0];
    RegexNode node;
    node.kind = RegexNode::kAlternate;
    node.children = std::move(options);
    return Add(std::move(node));
  }

  uint32_t Concat(uint32_t depth, bool fold) {
    RegexNode node;
    node.kind = RegexNode::kConcat;
    std::vector<bool> possessive;
    while (More() && text_[pos_] != '|' && text_[pos_] != ')') {
      bool no_give_back = false;
      const uint32_t item = Quantified(depth, fold, &no_give_back);
      node.children.push_back(item);
      possessive.push_back(no_give_back);
    }
    for (size_t i = 0; i < possessive.size() && status_.ok(); ++i) {
      if (possessive[i] && !PossessiveIsGreedy(node.children, i, depth)) {
        Fail("a possessive quantifier whose class meets what follows");
      }
    }
    if (node.children.size() == 1) return node.children[0];
    if (node.children.empty()) node.kind = RegexNode::kEmpty;
    return Add(std::move(node));
  }

  // X++ equals X+ when nothing X could give back would help the rest: the rest cannot begin with
  // X's class.
  bool PossessiveIsGreedy(const std::vector<uint32_t>& items, size_t at, uint32_t depth) const {
    const RegexNode& repeat = tree_.nodes[items[at]];
    const RegexNode& body = tree_.nodes[repeat.children[0]];
    if (body.kind != RegexNode::kSet) return false;
    for (size_t i = at + 1; i < items.size(); ++i) {
      const RegexNode* next = &tree_.nodes[items[i]];
      bool optional = false;
      if (next->kind == RegexNode::kRepeat) {
        optional = next->min == 0;
        next = &tree_.nodes[next->children[0]];
      }
      if (next->kind != RegexNode::kSet) return false;
      if (!Intersect(tree_.sets[body.set], tree_.sets[next->set]).empty()) return false;
      if (!optional) return true;
    }
    return depth == 0;  // the end of a top-level alternative: greedy has nothing to give back for
  }

  uint32_t Quantified(uint32_t depth, bool fold, bool* possessive) {
    const uint32_t atom = Atom(depth, fold);
    uint32_t result = atom;
    while (More()) {
      RegexNode node;
      node.kind = RegexNode::kRepeat;
      node.children = {result};
      const size_t before = pos_;
      bool counted = false;
      if (Eat("*")) {
        node.min = 0, node.max = kRepeatNoLimit;
      } else if (Eat("+")) {
        node.min = 1, node.max = kRepeatNoLimit;
      } else if (Eat("?")) {
        node.min = 0, node.max = 1;
      } else if (text_[pos_] == '{' && Count(&node.min, &node.max)) {
        counted = true;
      } else {
        pos_ = before;
        break;
      }
      if (Eat("?")) node.greedy = false;
      // In the syntax these patterns are written in, {m,n}+ is a repeat of a repeat, not a
      // possessive.
      const bool single = !counted && node.greedy && Eat("+");
      result = Add(std::move(node));
      if (single) {
        *possessive = true;
        break;
      }
    }
    return result;
  }

  bool Count(uint32_t* min, uint32_t* max) {
    size_t p = pos_ + 1;
    auto number = [&](uint32_t* out) {
      const size_t begin = p;
      uint64_t n = 0;
      while (p < text_.size() && text_[p] >= '0' && text_[p] <= '9' && n <= kRegexRepeatMax) {
        n = n * 10 + static_cast<uint64_t>(text_[p++] - '0');
      }
      *out = static_cast<uint32_t>(n);
      return p > begin;
    };
    const bool has_min = number(min);
    if (!has_min) *min = 0;
    *max = *min;
    bool has_max = false;
    if (p < text_.size() && text_[p] == ',') {
      ++p;
      has_max = number(max);
      if (!has_max) *max = kRepeatNoLimit;
    }
    if (p >= text_.size() || text_[p] != '}' || (!has_min && !has_max)) return false;
    pos_ = p + 1;
    if (*min > kRegexRepeatMax ||
        (*max != kRepeatNoLimit && (*max > kRegexRepeatMax || *max < *min))) {
      Fail("a repeat count out of range");
    }
    return true;
  }

  uint32_t Atom(uint32_t depth, bool fold) {
    if (Eat("(")) return Group(depth, fold);
    if (Eat("[")) return AddSet(Class(depth, fold));
    if (Eat(".")) return AddSet(Negate({{'\n', '\n'}}));
    if (Eat("$")) return AddAhead({{'\n', '\n'}}, true);
    if (text_[pos_] == '*' || text_[pos_] == '+' || text_[pos_] == '?')
      Fail("a quantifier with nothing before it");
    if (Eat("^")) Fail("^");
    if (Eat("\\z")) return AddAhead({}, true);
    if (!More()) return Add({});
    if (Eat("\\")) return AddSet(Fold(Escape(), fold));
    const uint32_t c = NextChar();
    return AddSet(Fold({{c, c}}, fold));
  }

  uint32_t Group(uint32_t depth, bool fold) {
    bool ahead = false, negative = false;
    if (Eat("?:")) {
    } else if (Eat("?i:")) {
      fold = true;
    } else if (Eat("?=")) {
      ahead = true;
    } else if (Eat("?!")) {
      ahead = negative = true;
    } else if (pos_ < text_.size() && text_[pos_] == '?') {
      Fail("group (" + ToValidUtf8(text_.substr(pos_, 3)));
    }
    uint32_t node = Alternation(depth + 1, fold);
    if (!Eat(")")) Fail("an unbalanced (");
    if (!status_.ok() || !ahead) return node;
    if (tree_.nodes[node].kind != RegexNode::kSet) {
      Fail("a lookahead of more than one character class");
      return node;
    }
    const CharSet set = tree_.sets[tree_.nodes[node].set];
    return negative ? AddAhead(Negate(set), true) : AddAhead(set, false);
  }

  // After '['. Items up to ']', each a character, a range, an escape or a nested class; &&
  // intersects.
  CharSet Class(uint32_t depth, bool fold) {
    if (depth > kRegexDepthMax) Fail("classes nested too deeply");
    const bool negated = Eat("^");
    CharSet all, left;
    bool intersect = false, first = true;
    while (More() && (first || text_[pos_] != ']')) {
      first = false;
      if (Eat("&&")) {
        left = intersect ? Intersect(left, MakeSet(all)) : MakeSet(all);
        all.clear();
        intersect = true;
        continue;
      }
      const CharSet item = ClassItem(depth);
      all.insert(all.end(), item.begin(), item.end());
    }
    if (!Eat("]")) Fail("an unbalanced [");
    all = MakeSet(std::move(all));
    if (intersect) all = Intersect(left, all);
    all = Fold(std::move(all), fold);
    return negated ? Negate(all) : all;
  }

  CharSet ClassItem(uint32_t depth) {
    if (text_.substr(pos_, 2) == "[:") Fail("a POSIX bracket");
    if (Eat("[")) return Class(depth + 1, false);
    CharSet low;
    if (Eat("\\")) {
      low = Escape();
      if (low.size() != 1 || low[0].lo != low[0].hi) return low;
    } else {
      const uint32_t c = NextChar();
      low = {{c, c}};
    }
    if (!More() || text_[pos_] != '-' || pos_ + 1 >= text_.size() || text_[pos_ + 1] == ']')
      return low;
    ++pos_;
    uint32_t high = 0;
    if (Eat("\\")) {
      const CharSet set = Escape();
      if (set.size() != 1 || set[0].lo != set[0].hi) {
        Fail("a range that ends in a class");
        return low;
      }
      high = set[0].lo;
    } else {
      high = NextChar();
    }
    if (high < low[0].lo) Fail("a reversed range");
    return {{low[0].lo, std::max(high, low[0].lo)}};
  }

  // After the backslash.
  CharSet Escape() {
    if (!More()) {
      Fail("a backslash at the end");
      return {};
    }
    const uint32_t c = NextChar();
    switch (c) {
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 's':
        return WhitespaceSet();
      case 'S':
        return Negate(WhitespaceSet());
      case 'd':
        return CategorySet("Nd");
      case 'D':
        return Negate(CategorySet("Nd"));
      case 'w':
        return WordSet();
      case 'W':
        return Negate(WordSet());
      case 'p':
      case 'P':
        return Property(c == 'P');
      case 'u':
        return Hex(4, false);
      case 'x':
        return Eat("{") ? Hex(8, true) : Hex(2, false);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) Fail(std::string("the escape \\") + static_cast<char>(c));
    return {{c, c}};
  }

  CharSet Property(bool negated) {
    std::string name;
    if (Eat("{")) {
      if (Eat("^")) negated = !negated;
      while (More() && text_[pos_] != '}') name += text_[pos_++];
      if (!Eat("}")) Fail("an unbalanced {");
    } else if (More()) {
      name = text_[pos_++];
    }
    CharSet set = CategorySet(name);
    if (set.empty()) Fail("the property \\p{" + ToValidUtf8(name) + "}");
    return negated ? Negate(set) : set;
  }

  CharSet Hex(int digits_max, bool braced) {
    uint32_t value = 0;
    int digits = 0;
    while (More() && digits < digits_max) {
      const char c = text_[pos_];
      int d = -1;
      if (c >= '0' && c <= '9') d = c - '0';
      if (c >= 'a' && c <= 'f') d = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') d = c - 'A' + 10;
      if (d < 0) break;
      value = value << 4 | static_cast<uint32_t>(d);
      ++digits, ++pos_;
    }
    if (digits == 0 || (braced && !Eat("}")) || value > kCodePointMax)
      Fail("a bad hexadecimal escape");
    return {{std::min(value, kCodePointMax), std::min(value, kCodePointMax)}};
  }

  // (?i): ASCII letters meet their other case and the two non-ASCII characters that fold to ASCII.
  static CharSet Fold(CharSet set, bool fold) {
    if (!fold) return set;
    CharSet more;
    for (uint32_t c = 'a'; c <= 'z'; ++c) {
      const uint32_t upper = c - 32;
      const uint32_t other = c == 's' ? 0x17F : c == 'k' ? 0x212A : c;
      if (!Contains(set, c) && !Contains(set, upper) && !Contains(set, other)) continue;
      more.insert(more.end(), {{c, c}, {upper, upper}, {other, other}});
    }
    return more.empty() ? set : Union(set, more);
  }

  std::string_view text_;
  size_t pos_ = 0;
  Status status_;
  RegexTree tree_;
};

}  // namespace

Result<RegexTree> ParseRegex(std::string_view pattern) { return Parser(pattern).Run(); }

}  // namespace sluice::text
