#include "memory/ledger.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/cpu.h"
#include "memory/arena.h"
#include "memory/background_prefault.h"

namespace sluice {
namespace {

TEST(LedgerTest, ReservationsComeAndGo) {
  Ledger ledger(1000);
  auto a = ledger.Reserve("weights", 600);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(ledger.used_bytes(), 600u);
  auto refused = ledger.Reserve("kv", 401);
  EXPECT_EQ(refused.status().code(), Code::kBudget);
  EXPECT_EQ(refused.status().ToString(),
            "401 bytes wanted, 400 of the budget of 1000 are free (kv); raise --budget by 1 bytes");
  {
    auto b = ledger.Reserve("kv", 400);
    ASSERT_TRUE(b.ok());
    Reservation moved = std::move(b).value();
    EXPECT_EQ(moved.bytes(), 400u);
    EXPECT_EQ(ledger.used_bytes(), 1000u);
    moved = Reservation();
    EXPECT_EQ(ledger.used_bytes(), 600u);
  }
  auto more = ledger.Reserve("weights", 100);
  ASSERT_TRUE(more.ok());
  const auto lines = ledger.Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].tag, "weights");
  EXPECT_EQ(lines[0].bytes, 700u);
  EXPECT_EQ(lines[1].bytes, 0u);
  EXPECT_EQ(ledger.Reserve("huge", UINT64_MAX).status().code(), Code::kBudget);
}

TEST(LedgerTest, AFrozenLedgerGivesNothing) {
  Ledger ledger(1000);
  auto a = ledger.Reserve("a", 10);
  ledger.Freeze();
  EXPECT_TRUE(ledger.frozen());
  EXPECT_EQ(ledger.Reserve("b", 1).status().code(), Code::kFailed);
  EXPECT_EQ(ledger.used_bytes(), 10u);
}

TEST(LedgerTest, ManyThreads) {
  Ledger ledger(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger, t] {
      for (int i = 0; i < 1000; ++i) {
        auto r = ledger.Reserve("t" + std::to_string(t), 64);
        EXPECT_TRUE(r.ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ledger.used_bytes(), 0u);
}

TEST(ArenaTest, DrawsFromTheLedgerAndReturns) {
  Ledger ledger(64 * kMiB);
  {
    auto made = Arena::Make(&ledger, "slots", 9 * kMiB + 1, Touch::kNow);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    Arena arena = std::move(made).value();
    EXPECT_EQ(arena.size(), AlignUp(9 * kMiB + 1, PageBytes()));
    EXPECT_EQ(ledger.used_bytes(), arena.size());
    for (uint64_t i = 0; i < arena.size(); i += 4093) ASSERT_EQ(arena.data()[i], 0);
    EXPECT_EQ(Arena::Make(&ledger, "more", 56 * kMiB, Touch::kLazily).status().code(),
              Code::kBudget);
    Arena other;
    other = std::move(arena);
    EXPECT_EQ(arena.data(), nullptr);
    EXPECT_GT(other.size(), 0u);
  }
  EXPECT_EQ(ledger.used_bytes(), 0u);
}

TEST(ArenaTest, PrefaultMakesEveryPageResidentAndNoMore) {
  Ledger ledger(256 * kMiB);
  const uint64_t before = ReadProcessMemory().rss_bytes;
  auto lazy = Arena::Make(&ledger, "lazy", 64 * kMiB, Touch::kLazily);
  ASSERT_TRUE(lazy.ok());
  EXPECT_LT(ReadProcessMemory().rss_bytes, before + 8 * kMiB);
  auto eager = Arena::Make(&ledger, "eager", 65 * kMiB, Touch::kNow);
  ASSERT_TRUE(eager.ok());
  const uint64_t after = ReadProcessMemory().rss_bytes;
  EXPECT_GE(after, before + 60 * kMiB);
  EXPECT_LE(after, before + 67 * kMiB) << "huge pages must not round the resident set up";
}

TEST(ArenaTest, LaterMeansNotInMakeAndAllOfItInTheBackground) {
  Ledger ledger(256 * kMiB);
  auto slots = Arena::Make(&ledger, "slots", 63 * kMiB, Touch::kLater);
  auto none = Arena::Make(&ledger, "none", 0, Touch::kLater);
  ASSERT_TRUE(slots.ok() && none.ok());
  const uint64_t before = ReadProcessMemory().rss_bytes;
  slots->data()[7] = 42;
  BackgroundPrefault fill(&*slots);
  slots->data()[9] = 43;
  ASSERT_TRUE(fill.Join().ok());
  EXPECT_GE(ReadProcessMemory().rss_bytes, before + 60 * kMiB);
  EXPECT_EQ(slots->data()[7], 42);
  EXPECT_EQ(slots->data()[9], 43);
  EXPECT_TRUE(BackgroundPrefault(&*none).Join().ok());
}

TEST(ArenaTest, TakeAlignsAndStopsAtTheEnd) {
  Ledger ledger(kMiB);
  auto arena = Arena::Make(&ledger, "a", PageBytes(), Touch::kLazily);
  ASSERT_TRUE(arena.ok());
  uint8_t* first = arena->Take(3);
  EXPECT_EQ(first, arena->data());
  EXPECT_EQ(arena->Take(1), arena->data() + 64);
  EXPECT_EQ(arena->Take(PageBytes()), nullptr);
  EXPECT_EQ(arena->Take(UINT64_MAX), nullptr);
  EXPECT_NE(arena->TakeArray<float>(4), nullptr);
  auto empty = Arena::Make(&ledger, "none", 0, Touch::kNow);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_EQ(Arena::Make(&ledger, "wrap", UINT64_MAX - 5, Touch::kNow).status().code(),
            Code::kBudget);
}

}  // namespace
}  // namespace sluice
