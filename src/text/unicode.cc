#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/unicode_recent.h"

namespace sluice::text {
namespace {

// Length the lead byte announces and the allowed range of the second byte (RFC 3629); 0: no lead
// byte.
struct Lead {
  uint32_t bytes = 0;
  uint8_t second_lo = 0x80, second_hi = 0xBF;
};

Lead ReadLead(uint8_t b) {
  if (b < 0x80) return {1};
  if (b < 0xC2) return {0};
  if (b < 0xE0) return {2};
  if (b < 0xF0) {
    if (b == 0xE0) return {3, 0xA0, 0xBF};
    if (b == 0xED) return {3, 0x80, 0x9F};  // no surrogates
    return {3};
  }
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

constexpr int kCategories = 30;  // UTF8PROC_CATEGORY_CN .. UTF8PROC_CATEGORY_CO
using CategoryRanges = std::array<CharSet, kCategories>;

// In the order of utf8proc_category_t.
constexpr std::string_view kCategoryNames[kCategories] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

int CategoryIndex(std::string_view name) {
  const auto* end = kCategoryNames + kCategories;
  return static_cast<int>(std::find(kCategoryNames, end, name) - kCategoryNames);
}

// utf8proc is asked only where characters are assigned; the rest is unassigned or private by
// definition.
CategoryRanges BuildCategories() {
  CategoryRanges out;
  auto add = [&out](int category, uint32_t lo, uint32_t hi) {
    CharSet& set = out[category];
    if (!set.empty() && set.back().hi + 1 == lo) {
      set.back().hi = hi;
    } else {
      set.push_back({lo, hi});
    }
  };
  const RecentRange* recent = std::begin(kRecentRanges);
  auto ask = [&](uint32_t lo, uint32_t hi) {
    for (uint32_t c = lo; c <= hi; ++c) {
      while (recent != std::end(kRecentRanges) && recent->hi < c) ++recent;
      const bool young = recent != std::end(kRecentRanges) && recent->lo <= c;
      add(young ? CategoryIndex(recent->category)
                : static_cast<int>(utf8proc_category(static_cast<utf8proc_int32_t>(c))),
          c, c);
    }
  };
  ask(0, 0x3FFFF);
  add(UTF8PROC_CATEGORY_CN, 0x40000, 0xDFFFF);
  ask(0xE0000, 0xE0FFF);
  add(UTF8PROC_CATEGORY_CN, 0xE1000, 0xEFFFF);
  add(UTF8PROC_CATEGORY_CO, 0xF0000, 0xFFFFD);
  add(UTF8PROC_CATEGORY_CN, 0xFFFFE, 0xFFFFF);
  add(UTF8PROC_CATEGORY_CO, 0x100000, 0x10FFFD);
  add(UTF8PROC_CATEGORY_CN, 0x10FFFE, kCodePointMax);
  return out;
}

const CategoryRanges& Categories() {
  static const CategoryRanges ranges = BuildCategories();
  return ranges;
}

}  // namespace

DecodedChar DecodeUtf8(const char* p, const char* end) {
  const uint8_t first = static_cast<uint8_t>(*p);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = ReadLead(first);
  if (lead.bytes == 0) return {};
  uint32_t value = first & (0x7F >> lead.bytes);
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    if (p + i == end) return {kReplacement, i, false, true};
    const uint8_t b = static_cast<uint8_t>(p[i]);
    const uint8_t lo = i == 1 ? lead.second_lo : 0x80;
    const uint8_t hi = i == 1 ? lead.second_hi : 0xBF;
    if (b < lo || b > hi) return {kReplacement, i, false, false};
    value = value << 6 | (b & 0x3F);
  }
  return {value, lead.bytes, true, false};
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

bool IsValidUtf8(std::string_view text) {
  const char* end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const DecodedChar c = DecodeUtf8(p, end);
    if (!c.valid) return false;
    p += c.bytes;
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const DecodedChar c = DecodeUtf8(p, end);
    if (c.valid) {
      out.append(p, c.bytes);
    } else {
      AppendUtf8(kReplacement, &out);
    }
    p += c.bytes;
  }
  return out;
}

CharSet MakeSet(CharSet ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CharRange& a, const CharRange& b) { return a.lo < b.lo; });
  CharSet out;
  for (const CharRange& r : ranges) {
    if (!out.empty() && r.lo <= out.back().hi + 1) {
      out.back().hi = std::max(out.back().hi, r.hi);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

CharSet Union(const CharSet& a, const CharSet& b) {
  CharSet both = a;
  both.insert(both.end(), b.begin(), b.end());
  return MakeSet(std::move(both));
}

CharSet Negate(const CharSet& set) {
  CharSet out;
  uint32_t next = 0;
  for (const CharRange& r : set) {
    if (r.lo > next) out.push_back({next, r.lo - 1});
    next = r.hi + 1;
  }
  if (next <= kCodePointMax) out.push_back({next, kCodePointMax});
  return out;
}

CharSet Intersect(const CharSet& a, const CharSet& b) {
  return Negate(Union(Negate(a), Negate(b)));
}

bool Contains(const CharSet& set, uint32_t c) {
  auto it = std::upper_bound(set.begin(), set.end(), c,
                             [](uint32_t value, const CharRange& r) { return value < r.lo; });
  return it != set.begin() && c <= std::prev(it)->hi;
}

CharSet CategorySet(std::string_view name) {
  CharSet all;
  for (int i = 0; i < kCategories; ++i) {
    const bool hit =
        name == kCategoryNames[i] || (name.size() == 1 && name[0] == kCategoryNames[i][0]);
    if (hit) all.insert(all.end(), Categories()[i].begin(), Categories()[i].end());
  }
  return MakeSet(std::move(all));
}

const CharSet& WhitespaceSet() {
  static const CharSet set = {
      {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  return set;
}

namespace {

// The circled and squared letters are symbols by category and alphabetic by property.
CharSet WithLettersAndMarks(const CharSet& more) {
  const CharSet circled = {
      {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  return Union(Union(Union(CategorySet("L"), CategorySet("M")), Union(CategorySet("Pc"), circled)),
               more);
}

}  // namespace

const CharSet& WordSet() {
  static const CharSet set = WithLettersAndMarks(CategorySet("N"));
  return set;
}

const CharSet& UnicodeWordSet() {
  static const CharSet set =
      WithLettersAndMarks(Union(Union(CategorySet("Nd"), CategorySet("Nl")), {{0x200C, 0x200D}}));
  return set;
}

}  // namespace sluice::text
