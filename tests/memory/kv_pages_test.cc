#include "memory/kv_pages.h"

#include <gtest/gtest.h>
#include <string.h>

namespace sluice {
namespace {

class KvPagesTest : public ::testing::Test {
 protected:
  Ledger ledger_{4 * kMiB};
  KvPagePool pool_ = std::move(KvPagePool::Make(&ledger_, 1000, 8)).value();
};

TEST_F(KvPagesTest, PagesAreCountedAndComeBack) {
  EXPECT_EQ(ledger_.used_bytes(), 8192u);
  const int a = pool_.Alloc(), b = pool_.Alloc();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool_.data(b) - pool_.data(a), (b - a) * 1000);
  pool_.Ref(a);
  pool_.Unref(a);
  EXPECT_EQ(pool_.free_pages(), 6u);
  pool_.Unref(a);
  EXPECT_EQ(pool_.free_pages(), 7u);
  for (int i = 0; i < 7; ++i) EXPECT_GE(pool_.Alloc(), 0);
  EXPECT_EQ(pool_.Alloc(), -1);
}

TEST_F(KvPagesTest, ATableGrowsShrinksAndRefusesWithoutAChange) {
  KvPageTable table(&pool_, 4);
  ASSERT_TRUE(table.Append(1).ok());
  EXPECT_EQ(table.pages(), 1u);
  ASSERT_TRUE(table.Append(63).ok());
  EXPECT_EQ(table.pages(), 1u);
  ASSERT_TRUE(table.Append(1).ok());
  EXPECT_EQ(table.pages(), 2u);
  EXPECT_EQ(table.Append(192).code(), Code::kContextFull);
  EXPECT_EQ(table.tokens(), 65u);
  EXPECT_EQ(table.Append(UINT32_MAX).code(), Code::kContextFull);
  EXPECT_EQ(pool_.free_pages(), 6u);
  table.Truncate(64);
  EXPECT_EQ(table.pages(), 1u);
  table.Clear();
  EXPECT_EQ(pool_.free_pages(), 8u);
}

TEST_F(KvPagesTest, ForksShareUntilTheyWrite) {
  KvPageTable a(&pool_, 8);
  ASSERT_TRUE(a.Append(100).ok());
  memset(a.data(0), 1, 1000);
  memset(a.data(1), 2, 1000);
  {
    KvPageTable b(&pool_, 8);
    ASSERT_TRUE(b.Fork(a, 90).ok());
    EXPECT_EQ(b.tokens(), 90u);
    EXPECT_EQ(pool_.free_pages(), 6u);
    ASSERT_TRUE(b.Append(1).ok());  // its tail page is shared: copied first
    EXPECT_EQ(b.page(0), a.page(0));
    EXPECT_NE(b.page(1), a.page(1));
    EXPECT_EQ(memcmp(b.data(1), a.data(1), 1000), 0);
    EXPECT_EQ(pool_.references(a.page(0)), 2u);
    EXPECT_EQ(pool_.references(a.page(1)), 1u);
    ASSERT_TRUE(b.MakeOwn(0).ok());
    EXPECT_NE(b.page(0), a.page(0));
    EXPECT_EQ(pool_.free_pages(), 4u);
  }
  EXPECT_EQ(pool_.free_pages(), 6u);
  EXPECT_EQ(a.data(0)[0], 1);
}

TEST_F(KvPagesTest, WholePagesAreSharedForNothing) {
  KvPageTable a(&pool_, 8), b(&pool_, 8);
  ASSERT_TRUE(a.Append(128).ok());
  ASSERT_TRUE(b.Fork(a, 64).ok());
  ASSERT_TRUE(b.Append(1).ok());
  EXPECT_EQ(b.page(0), a.page(0));
  EXPECT_EQ(pool_.free_pages(), 5u);
}

TEST(KvPagePoolTest, PagesAreAwayWhileOthersHaveTheirFrames) {
  Ledger ledger{4 * kMiB};
  KvPagePool pool = std::move(KvPagePool::Make(&ledger, 1000, 8, 2)).value();
  EXPECT_EQ(ledger.used_bytes(), 4096u);
  const int a = pool.Alloc(), b = pool.Alloc();
  EXPECT_EQ(pool.free_pages(), 6u);
  EXPECT_EQ(pool.Alloc(), -1) << "no frame";
  uint8_t* const frame = pool.data(a);
  pool.SetSaved(a, true);
  pool.Evict(a);
  EXPECT_EQ(pool.data(a), nullptr);
  EXPECT_EQ(pool.references(a), 1u);
  const int c = pool.Alloc();
  EXPECT_NE(c, a);
  EXPECT_EQ(pool.data(c), frame);
  EXPECT_FALSE(pool.saved(c));
  EXPECT_FALSE(pool.Fetch(a));
  pool.Unref(b);
  EXPECT_TRUE(pool.Fetch(a));
  EXPECT_TRUE(pool.saved(a));
  pool.Evict(a);
  pool.Unref(a);  // a page that is away has no frame to give back
  EXPECT_EQ(pool.free_frames(), 1u);
  EXPECT_EQ(pool.free_pages(), 7u);
}

TEST(KvPagePoolTest, SlidingPartsHaveFramesOfTheirOwn) {
  Ledger ledger(4 * kMiB);
  KvPagePool pool = std::move(KvPagePool::Make(&ledger, 1000, 4, 0, 500, 2)).value();
  KvPageTable table(&pool, 4);
  ASSERT_TRUE(table.Append(130).ok());
  EXPECT_EQ(table.sliding_data(0), nullptr) << "new pages have none";
  ASSERT_TRUE(pool.TakeSliding(table.page(1)));
  ASSERT_TRUE(pool.TakeSliding(table.page(2)));
  EXPECT_FALSE(pool.TakeSliding(table.page(0)));
  memset(table.sliding_data(2), 7, 500);
  {
    KvPageTable other(&pool, 4);
    ASSERT_TRUE(other.Fork(table, 130).ok());
    ASSERT_TRUE(other.MakeOwn(2).ok());  // no frame is free: the copy has lost its part
    EXPECT_FALSE(pool.has_sliding(other.page(2)));
    EXPECT_TRUE(pool.has_sliding(table.page(2)));
  }
  pool.DropSliding(table.page(1));
  pool.DropSliding(table.page(1));  // nothing to drop
  EXPECT_EQ(pool.free_sliding_frames(), 1u);
  KvPageTable other(&pool, 4);
  ASSERT_TRUE(other.Fork(table, 130).ok());
  ASSERT_TRUE(other.MakeOwn(2).ok());
  ASSERT_NE(other.sliding_data(2), nullptr);
  EXPECT_NE(other.sliding_data(2), table.sliding_data(2));
  EXPECT_EQ(memcmp(other.sliding_data(2), table.sliding_data(2), 500), 0);
  other.Clear();
  table.Clear();
  EXPECT_EQ(pool.free_sliding_frames(), 2u) << "they go with their pages";
}

TEST(KvPagePoolTest, SizesThatDoNotFitAreRefused) {
  Ledger ledger(1000);
  EXPECT_EQ(KvPagePool::Make(&ledger, 1000, 2).status().code(), Code::kBudget);
  EXPECT_EQ(KvPagePool::Make(&ledger, UINT64_MAX / 2, 4).status().code(), Code::kBudget);
}

}  // namespace
}  // namespace sluice
