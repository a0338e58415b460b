#include <gtest/gtest.h>

#include "tests/text/tok_support.h"

namespace sluice {
namespace {

using testing::ByteLevelSource;
using testing::Ids;
using testing::ScoreSource;

TEST(StreamDecoder, HoldsHalfCharactersBack) {
  auto t = ByteLevelSource().Build();
  ASSERT_TRUE(t.ok());
  StreamDecoder s(t->get());
  EXPECT_EQ(s.Push('a'), "a");
  EXPECT_EQ(s.Push(0xF0), "");
  EXPECT_EQ(s.Push(0x9F), "");
  EXPECT_EQ(s.Push(0x98), "");
  EXPECT_EQ(s.Push(0x8A), "😊");
  EXPECT_EQ(s.Push(0xE4), "");
  EXPECT_EQ(s.Flush(), "");  // an incomplete tail is dropped
  EXPECT_EQ(s.Push('b'), "b");
}

TEST(StreamDecoder, InventsNoReplacementMark) {
  auto t = ByteLevelSource().Build();
  ASSERT_TRUE(t.ok());
  StreamDecoder s(t->get());
  std::string out;
  for (TokenId id : {0xFF, int{'x'}, 0xE4, 0xBD, int{'y'}, 0x80}) out += s.Push(id);
  EXPECT_EQ(out, "xy");
  // One that the model did write stays.
  out.clear();
  for (TokenId id : {0xEF, 0xBF, 0xBD}) out += s.Push(id);
  EXPECT_EQ(out, "\xEF\xBF\xBD");
}

TEST(StreamDecoder, ControlTokensOnlyOnRequest) {
  auto t = ByteLevelSource().Build();
  ASSERT_TRUE(t.ok());
  const TokenId end = (*t)->FindToken("<|im_end|>");
  EXPECT_EQ(StreamDecoder(t->get()).Push(end), "");
  EXPECT_EQ(StreamDecoder(t->get(), true).Push(end), "<|im_end|>");
  EXPECT_EQ((*t)->Decode({end}, false), "");
  EXPECT_EQ((*t)->Decode({end}, true), "<|im_end|>");
}

TEST(StreamDecoder, FirstSpaceOfSentencePiece) {
  auto t = ScoreSource().Build();
  ASSERT_TRUE(t.ok());
  const TokenId the = (*t)->FindToken(" the"), bos = (*t)->special().bos;
  StreamDecoder answer(t->get());
  EXPECT_EQ(answer.Push(bos), "");  // gives nothing, so it does not use up the first word
  EXPECT_EQ(answer.Push(the), "the");
  EXPECT_EQ(answer.Push(the), " the");
  StreamDecoder goes_on(t->get(), false, true);
  EXPECT_EQ(goes_on.Push(the), " the");
  EXPECT_EQ((*t)->Decode({the, the}), "the the");
  EXPECT_EQ((*t)->Decode({bos, the}, false), "the");
  EXPECT_EQ((*t)->Decode({bos, the}, true), "<s> the");
}

TEST(Decode, BrokenBytesBecomeReplacementMarks) {
  auto bytes = ByteLevelSource().Build();
  auto scores = ScoreSource().Build();
  ASSERT_TRUE(bytes.ok() && scores.ok());
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ((*bytes)->Decode({'a', 0xE4, 0xBD, 'b'}), "a" + mark + "b");  // one per broken sequence
  const Ids half = {3 + 0xE4, 3 + 0xBD};
  EXPECT_EQ((*scores)->Decode(half), mark + mark);  // one per byte token
  EXPECT_EQ((*scores)->Decode({3 + 0xE4, 3 + 0xBD, 3 + 0xA0}), "你");
}

}  // namespace
}  // namespace sluice
