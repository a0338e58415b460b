// UTF-8 steps and Unicode facts for the tokenizer.
//
// Contract: pure functions, thread-safe. Nothing here trusts its input: bytes that are no UTF-8 are
// reported as such and never read past `end`. Character data is utf8proc's (Unicode 15 on Debian
// 12); the category ranges are built once per process (about 3 ms, 30 KB).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

constexpr uint32_t kCodePointMax = 0x10FFFF;
constexpr uint32_t kReplacement = 0xFFFD;

struct DecodedChar {
  uint32_t value = kReplacement;
  uint32_t bytes = 1;  // consumed; for a broken sequence its longest valid beginning (at least 1)
  bool valid = false;
  bool truncated = false;  // broken only because the text ends here
};
// One character at p; p < end.
DecodedChar DecodeUtf8(const char* p, const char* end);

void AppendUtf8(uint32_t code_point, std::string* out);

// Each broken sequence becomes one U+FFFD (what Rust's from_utf8_lossy does).
std::string ToValidUtf8(std::string_view text);
bool IsValidUtf8(std::string_view text);

// A set of code points: sorted, disjoint, inclusive ranges.
struct CharRange {
  uint32_t lo, hi;
  bool operator==(const CharRange&) const = default;
};
using CharSet = std::vector<CharRange>;

CharSet MakeSet(CharSet ranges);  // sorts and joins
CharSet Union(const CharSet& a, const CharSet& b);
CharSet Negate(const CharSet& set);
CharSet Intersect(const CharSet& a, const CharSet& b);
bool Contains(const CharSet& set, uint32_t code_point);

// "L", "Lu", "N", ...; empty when the name is unknown.
CharSet CategorySet(std::string_view name);
const CharSet& WhitespaceSet();  // White_Space
const CharSet&
UnicodeWordSet();          // \w by UTS 18: numbers only if decimal or letter-like, joiners too
const CharSet& WordSet();  // \w: letters, marks, numbers, connectors

}  // namespace sluice::text
