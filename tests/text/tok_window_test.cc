// Long words are merged in windows: the same ids as in one piece, and memory that does not grow
// with the word.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <set>

#include "base/cpu.h"
#include "tests/text/tok_support.h"
#include "text/bpe_tokenizer.h"

namespace sluice {
namespace {

using testing::ByteLevelSource;
using testing::Ids;
using testing::ListSource;
using testing::ScoreSource;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t Below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % n;
  }

 private:
  uint64_t state_;
};

std::unique_ptr<text::BpeTokenizer> Build(const ListSource& source, size_t window) {
  Result<std::unique_ptr<Tokenizer>> t = source.Build();
  EXPECT_TRUE(t.ok()) << t.status().ToString();
  if (!t.ok()) return nullptr;
  std::unique_ptr<text::BpeTokenizer> bpe(static_cast<text::BpeTokenizer*>(t->release()));
  bpe->SetWordWindow(window);
  return bpe;
}

// A vocabulary of random joints over a few letters: much that merges across, early and late.
ListSource RandomRanks(Random* random) {
  ListSource s = ByteLevelSource();
  s.merges.clear();
  std::vector<std::string> known = {"a", "b", "c"};
  std::set<std::string> tokens(s.tokens.begin(), s.tokens.end());
  for (int i = 0; i < 40; ++i) {
    const std::string& left = known[random->Below(static_cast<uint32_t>(known.size()))];
    const std::string& right = known[random->Below(static_cast<uint32_t>(known.size()))];
    const std::string joined = left + right;
    if (joined.size() > 9) continue;
    s.merges.push_back(left + " " + right);
    if (tokens.insert(joined).second) {
      s.Add(joined, 1);
      known.push_back(joined);
    }
  }
  return s;
}

ListSource RandomScores(Random* random) {
  ListSource s = ScoreSource();
  std::vector<std::string> known = {"a", "l", "é", "o"};
  std::set<std::string> tokens(s.tokens.begin(), s.tokens.end());
  for (int i = 0; i < 40; ++i) {
    const std::string joined = known[random->Below(static_cast<uint32_t>(known.size()))] +
                               known[random->Below(static_cast<uint32_t>(known.size()))];
    if (joined.size() > 9 || !tokens.insert(joined).second) continue;
    s.Add(joined, 1, -static_cast<float>(random->Below(30)));  // equal scores too
    known.push_back(joined);
  }
  return s;
}

std::string RandomWord(Random* random, const std::vector<std::string>& letters, size_t bytes) {
  std::string word;
  while (word.size() < bytes) {
    const std::string& unit = letters[random->Below(static_cast<uint32_t>(letters.size()))];
    const uint32_t repeats = random->Below(4) == 0 ? 1 + random->Below(40) : 1;
    for (uint32_t i = 0; i < repeats; ++i) word += unit;
  }
  return word;
}

TEST(TokWindow, WindowsGiveTheIdsOfTheWholeWord) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    Random random(seed);
    const bool scores = seed % 2 == 0;
    const ListSource source = scores ? RandomScores(&random) : RandomRanks(&random);
    // With scores: characters that are no token, and broken ones, between those that are.
    const std::vector<std::string> letters =
        scores ? std::vector<std::string>{"a", "l", "é", "o", "a", "l", "o", "你", "\xC3"}
               : std::vector<std::string>{"a", "b", "c"};
    const std::string word = RandomWord(&random, letters, 700);
    const Ids want = Build(source, SIZE_MAX / 2)->Encode(word, false, false);
    for (size_t window : {1, 2, 7, 16, 33, 64, 250}) {
      EXPECT_EQ(Build(source, window)->Encode(word, false, false), want)
          << "seed " << seed << ", window " << window << ": " << word;
    }
  }
}

// A merge that a far away end decides: "xx...x" is cut in pairs from the left, so a window that
// ends elsewhere must not decide for the whole.
TEST(TokWindow, RunsAreCutFromTheirBegin) {
  ListSource s = ByteLevelSource();
  for (const char* merge : {"x x", "xx xx", "xxxx xxxx"}) {
    s.merges.push_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    s.Add(joined, 1);
  }
  for (size_t n : {1u, 8u, 15u, 100u, 1001u}) {
    const std::string word(n, 'x');
    const Ids want = Build(s, SIZE_MAX / 2)->Encode(word, false, false);
    for (size_t window : {5, 9, 64}) {
      EXPECT_EQ(Build(s, window)->Encode(word, false, false), want) << n << ", window " << window;
    }
  }
}

bool ResetPeak() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return false;
  const bool wrote = std::fputs("5", file) >= 0;
  return std::fclose(file) == 0 && wrote;
}

TEST(TokWindow, AMegabyteOfOneLetterTakesAFewMegabytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIP: a sanitizer's allocator keeps what is freed";
#endif
  if (!ResetPeak()) GTEST_SKIP() << "SKIP: the peak cannot be reset here";
  const auto bytes = Build(ByteLevelSource(), 32 * 1024);
  const auto scores = Build(ScoreSource(), 32 * 1024);
  for (const Tokenizer* t :
       {static_cast<Tokenizer*>(bytes.get()), static_cast<Tokenizer*>(scores.get())}) {
    for (const char* unit : {"l", "A", "he", "你"}) {
      std::string text;
      text.reserve(1 << 20);
      while (text.size() + 4 < 1 << 20) text += unit;
      malloc_trim(0);
      ASSERT_TRUE(ResetPeak());
      const uint64_t before = ReadProcessMemory().rss_bytes;
      const Ids ids = t->Encode(text, false, false);
      const uint64_t grown = ReadProcessMemory().peak_rss_bytes - before;
      EXPECT_LE(grown, ids.capacity() * sizeof(TokenId) + (4 << 20))
          << unit << ": " << ids.size() << " ids";
    }
  }
}

}  // namespace
}  // namespace sluice
