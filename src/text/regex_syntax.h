// The regular expressions tokenizers use, parsed to a small tree.
//
// Contract: pure; any bytes may come in (they are read from model files), the answer is a tree or
// an error that names the construct. Covered: alternation, groups, (?:) (?i:), classes with ranges,
// negation, nesting and &&, \p{category} \P \s \S \d \D \w \W and their escapes, * + ? {m,n} and
// the lazy forms, possessive forms where they mean the same as greedy ones, lookahead over one
// character class (?=[..]) (?!\S), $ and \z. Not covered, refused by name: back references,
// lookbehind, longer lookaheads, \b, scripts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/unicode.h"

namespace sluice::text {

struct RegexNode {
  enum Kind : uint8_t { kEmpty, kSet, kAhead, kConcat, kAlternate, kRepeat } kind = kEmpty;
  uint32_t set = 0;           // kSet, kAhead: index into RegexTree::sets
  bool or_end = false;        // kAhead: also holds at the end of the text
  bool greedy = true;         // kRepeat
  uint32_t min = 0, max = 0;  // kRepeat; max kRepeatNoLimit
  std::vector<uint32_t> children;
};

constexpr uint32_t kRepeatNoLimit = UINT32_MAX;
constexpr uint32_t kRegexSetsMax = 64;  // one bit each in a signature
constexpr uint32_t kRegexNodesMax = 4096;
constexpr uint32_t kRegexDepthMax = 32;
constexpr uint32_t kRegexRepeatMax = 1024;  // {512} occurs in the wild
constexpr uint32_t kRegexBytesMax = 16384;

struct RegexTree {
  std::vector<RegexNode> nodes;
  std::vector<CharSet> sets;
  uint32_t root = 0;
};

Result<RegexTree> ParseRegex(std::string_view pattern);

}  // namespace sluice::text
