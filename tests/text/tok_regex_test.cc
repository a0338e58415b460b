#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "text/pretokenizer.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

using Pieces = std::vector<std::string>;

// Matches in <>, gaps bare.
std::string Cut(const std::string& pattern, const std::string& text) {
  Result<SplitRegex> regex = SplitRegex::Compile(pattern);
  if (!regex.ok()) return "error: " + regex.status().ToString();
  std::string out;
  regex->Split(text, false, [&](size_t begin, size_t end, bool match) {
    const std::string piece = text.substr(begin, end - begin);
    out += match ? "<" + piece + ">" : piece;
  });
  return out;
}

TEST(SplitRegex, LeftmostFirstNotLongest) {
  EXPECT_EQ(Cut("a|ab", "ab"), "<a>b");
  EXPECT_EQ(Cut("ab|a", "abа"), "<ab>а");
  EXPECT_EQ(Cut("a*?b", "aab"), "<aab>");
  EXPECT_EQ(Cut("a+?", "aa"), "<a><a>");
  EXPECT_EQ(Cut("(ab)*c", "ababc"), "<ababc>");
  EXPECT_EQ(Cut("[0-9]{1,3}", "1234567"), "<123><456><7>");
  EXPECT_EQ(Cut("x{2}", "xxxxx"), "<xx><xx>x");
  EXPECT_EQ(Cut("x{2,}", "xxxxx y x"), "<xxxxx> y x");
}

TEST(SplitRegex, GreedyGivesBack) {
  EXPECT_EQ(Cut("[ab]*b", "aabba"), "<aabb>a");
  EXPECT_EQ(Cut(R"(\s+(?!\S)|\s+)", "a   b"), "a<  >< >b");
  EXPECT_EQ(Cut(R"(\s+(?!\S))", "a b  "), "a b<  >");
  EXPECT_EQ(Cut(R"(\s+$)", " a  "), " a<  >");
  EXPECT_EQ(Cut(R"(\s*[\r\n]+)", "  \n  x"), "<  \n>  x");
}

TEST(SplitRegex, ClassesAndEscapes) {
  EXPECT_EQ(Cut(R"([^\s\p{L}])", "a1 b-"), "a<1> b<->");
  EXPECT_EQ(Cut(R"([\p{L}&&[^a]]+)", "abca"), "a<bc>a");
  EXPECT_EQ(Cut(R"([a\-z]+)", "a-zb"), "<a-z>b");
  EXPECT_EQ(Cut(R"([]x]+)", "]x["), "<]x>[");
  EXPECT_EQ(Cut(R"(\P{N}+)", "ab1"), "<ab>1");
  EXPECT_EQ(Cut(R"(\u00e9|\x{1F60A}|\x41)", "éA😊"), "<é><A><😊>");
  EXPECT_EQ(Cut("(?i:'s)", "'s'S'\xC5\xBF'x"), "<'s><'S><'\xC5\xBF>'x");
}

TEST(SplitRegex, PossessiveOnlyWhereItMeansGreedy) {
  EXPECT_EQ(Cut(R"([^\r\n\p{L}\p{N}]?+\p{L}+)", " ab"), "< ab>");
  EXPECT_EQ(Cut(R"( ?[^\s\p{L}\p{N}]++[\r\n]*)", "!!\n"), "<!!\n>");
  EXPECT_NE(Cut(R"(\s++$)", "  ").find("possessive"), std::string::npos);
}

TEST(SplitRegex, RefusesByName) {
  for (const char* pattern : {R"(\bfoo)", R"((?<=a)b)", R"((?=ab)c)", R"(\p{Han}+)", "(a", "a)",
                              "[a", "*a", R"(\1)", "^a", "x{5000}", "[z-a]", "\\", "a\xFF"}) {
    Result<SplitRegex> regex = SplitRegex::Compile(pattern);
    EXPECT_FALSE(regex.ok()) << pattern;
    if (!regex.ok()) {
      EXPECT_NE(regex.status().ToString().find("regular expression"), std::string::npos);
    }
  }
  EXPECT_FALSE(SplitRegex::Compile(std::string(100, '(') + std::string(100, ')')).ok());
  EXPECT_FALSE(SplitRegex::Compile("(((((x{1000}){1000}){1000})))").ok());
}

TEST(SplitRegex, BrokenUtf8IsCoveredExactlyOnce) {
  const std::string text =
      "a\xFF\xE4\xBD"
      "b\xF0\x9F\x98";
  Result<SplitRegex> regex = SplitRegex::Compile(kGpt2Pattern);
  ASSERT_TRUE(regex.ok());
  std::string all;
  regex->Split(text, false,
               [&](size_t begin, size_t end, bool) { all += text.substr(begin, end - begin); });
  EXPECT_EQ(all, text);
}

// A scan that runs to the end and fails at every start would be quadratic without the trace.
TEST(SplitRegex, FailedScansStayLinear) {
  Result<SplitRegex> regex = SplitRegex::Compile(R"(\s+$)");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(1000000, ' ') + "x";
  size_t pieces = 0;
  const std::clock_t begin = std::clock();
  regex->Split(text, false, [&](size_t, size_t, bool) { ++pieces; });
  EXPECT_EQ(pieces, 1u);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2.0);
}

TEST(PreTokenizer, FamiliesEqualTheReference) {
  std::ifstream file(SLUICE_SOURCE_DIR "/tests/fixtures/text/tok_families.jsonl");
  std::map<std::string, PreFamily> families;
  std::string line;
  size_t lines = 0;
  while (std::getline(file, line)) {
    const nlohmann::json c = nlohmann::json::parse(line);
    const std::string name = c["f"];
    if (!families.count(name)) {
      Result<PreFamily> family = MakePreFamily(name);
      ASSERT_TRUE(family.ok()) << family.status().ToString();
      families.emplace(name, std::move(*family));
    }
    Pieces pieces;
    const std::string text = c["t"];
    families.at(name).pre.Run(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    EXPECT_EQ(pieces, c["p"].get<Pieces>()) << name << " " << c["t"];
    ++lines;
  }
  EXPECT_EQ(families.size(), 17u);
  EXPECT_EQ(lines, 17u * 12);
}

TEST(PreTokenizer, UnknownFamilyIsRefusedByName) {
  Result<PreFamily> family = MakePreFamily("no-such-rule");
  ASSERT_FALSE(family.ok());
  EXPECT_EQ(family.status().code(), Code::kBadModel);
  EXPECT_NE(family.status().ToString().find("no-such-rule"), std::string::npos);
}

TEST(PreTokenizer, YoungScriptsAreLetters) {
  EXPECT_TRUE(Contains(CategorySet("Lo"), 0x13773));  // Egyptian Hieroglyphs Extended-A, Unicode 16
  EXPECT_TRUE(Contains(CategorySet("Lo"), 0x2EBF0));  // CJK extension I, Unicode 15.1
  EXPECT_TRUE(CategorySet("Xx").empty());
}

}  // namespace
}  // namespace sluice::text
