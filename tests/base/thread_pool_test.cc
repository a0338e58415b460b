#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"

namespace {
std::atomic<uint64_t> g_allocations{0};
}  // namespace

// Counts every allocation of this binary: Run must make none.
void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace sluice {
namespace {

double ThreadCpuSeconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

TEST(ThreadPool, EachPartOnceForAnyShape) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int parts : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(parts));
      pool.Run(parts, [&](int part) { hits[static_cast<size_t>(part)].fetch_add(1); });
      for (const auto& hit : hits)
        EXPECT_EQ(hit.load(), 1) << threads << " threads, " << parts << " parts";
    }
  }
}

// Plain writes by workers are read by the owner after Run: a missing barrier shows here and under
// TSan.
TEST(ThreadPool, ManyShortJobsSeeEachOther) {
  ThreadPool pool(4);
  std::vector<uint64_t> cells(37, 0);
  constexpr int kJobs = 3000;
  for (int job = 0; job < kJobs; ++job) {
    const int parts = 1 + job % 37;
    pool.Run(parts, [&](int part) {
      cells[static_cast<size_t>(part)] += static_cast<uint64_t>(part) + 1;
    });
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    uint64_t runs = 0;
    for (int job = 0; job < kJobs; ++job) runs += static_cast<size_t>(1 + job % 37) > i;
    EXPECT_EQ(cells[i], runs * (i + 1)) << i;
  }
}

TEST(ThreadPool, WorkersWakeAfterASleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Both parts must be under way at once, so the parked worker has to come.
    std::atomic<int> arrived{0};
    const uint64_t deadline = NowNanos() + 10'000'000'000u;
    pool.Run(2, [&](int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2 && NowNanos() < deadline) sched_yield();
    });
    EXPECT_EQ(arrived.load(), 2);
    EXPECT_LT(NowNanos(), deadline);
  }
}

TEST(ThreadPool, SlowPartDoesNotHoldTheOthers) {
  ThreadPool pool(2);
  std::atomic<int> quick{0};
  pool.Run(9, [&](int part) {
    if (part != 0) {
      quick.fetch_add(1);
      return;
    }
    const uint64_t deadline = NowNanos() + 10'000'000'000u;
    while (quick.load() < 8 && NowNanos() < deadline) sched_yield();
    EXPECT_EQ(quick.load(), 8);  // claimed dynamically by the other thread
  });
}

TEST(ThreadPool, RunAllocatesNothing) {
  ThreadPool pool(3);
  std::atomic<uint64_t> sum{0};
  const auto job = [&](int part) { sum.fetch_add(static_cast<uint64_t>(part)); };
  pool.Run(16, job);
  const uint64_t before = g_allocations.load();
  for (int i = 0; i < 200; ++i) pool.Run(16, job);
  EXPECT_EQ(g_allocations.load(), before);
  EXPECT_EQ(sum.load(), 201u * 120u);
}

TEST(ThreadPool, IdleWorkersSleep) {
  ThreadPool pool(4);
  pool.Run(8, [](int) {});
  const double before = ThreadCpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ThreadCpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0.05);
}

TEST(ThreadPool, OneThreadRunsInlineInOrder) {
  ThreadPool pool(1);
  std::vector<int> order;
  const auto self = std::this_thread::get_id();
  pool.Run(5, [&](int part) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(part);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ThreadPool(0).threads(), 1);
  EXPECT_EQ(ThreadPool(-3).threads(), 1);
}

TEST(ThreadPool, PinsAndRestores) {
  const std::vector<int> before = AllowedCpus();
  const int cpu = before.back();
  {
    ThreadPool pool(2, {cpu});
    std::atomic<int> elsewhere{0};
    pool.Run(64, [&](int) { elsewhere.fetch_add(sched_getcpu() != cpu); });
    if (AllowedCpus() != std::vector<int>{cpu}) GTEST_SKIP() << "pinning is not allowed here";
    EXPECT_EQ(elsewhere.load(), 0);
  }
  EXPECT_EQ(AllowedCpus(), before);
}

// What `taskset -ap` does: every thread of the process, from outside.
void MoveAllThreads(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    sched_setaffinity(std::stoi(task.path().filename()), sizeof(set), &set);
}

TEST(ThreadPool, FollowsTheAllowedCpus) {
  const std::vector<int> before = AllowedCpus();
  if (before.size() < 2) GTEST_SKIP() << "SKIP: one processor";
  ThreadPool pool(2);
  const auto check = [&](int active) {
    EXPECT_EQ(pool.active_threads(), active);
    std::vector<std::atomic<int>> hits(33);
    std::atomic<int> by_others{0};
    const auto self = std::this_thread::get_id();
    for (int round = 0; round < 20; ++round) {
      pool.Run(33, [&](int part) {
        hits[static_cast<size_t>(part)].fetch_add(1);
        by_others.fetch_add(std::this_thread::get_id() != self);
      });
    }
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 20);
    if (active == 1) EXPECT_EQ(by_others.load(), 0);
  };
  check(2);
  for (int round = 0; round < 3; ++round) {
    MoveAllThreads({before[1]});
    pool.FollowCpus();
    check(1);
    MoveAllThreads(before);
    pool.FollowCpus();
    check(2);
  }
}

TEST(ThreadPool, MoreThreadsThanCpusRestAndComeBack) {
  const std::vector<int> before = AllowedCpus();
  ThreadPool pool(8);
  pool.FollowCpus();
  EXPECT_EQ(pool.active_threads(), std::min<int>(8, static_cast<int>(before.size())));
  std::atomic<uint64_t> sum{0};
  const double cpu = ThreadCpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < 200; ++i) pool.Run(16, [&](int) { sum.fetch_add(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(sum.load(), 3200u);
  EXPECT_LT(ThreadCpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, 0.1);  // nobody spins
}

// Only a worker was moved: seen at the latest at the 16th look.
TEST(ThreadPool, SeesAMovedWorker) {
  const std::vector<int> before = AllowedCpus();
  if (before.size() < 2) GTEST_SKIP() << "SKIP: one processor";
  MoveAllThreads({before[0]});
  ThreadPool pool(2);
  pool.FollowCpus();
  EXPECT_EQ(pool.active_threads(), 1);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(before[1]), &set);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const int id = std::stoi(task.path().filename());
    if (id != getpid()) sched_setaffinity(id, sizeof(set), &set);
  }
  for (int look = 0; look < 16; ++look) pool.FollowCpus();
  EXPECT_EQ(pool.active_threads(), 2);
  MoveAllThreads(before);
}

TEST(ThreadPool, SharedPlacementIsASetAndIsRestored) {
  const std::vector<int> before = AllowedCpus();
  const std::vector<int> place = {before.back()};
  {
    ThreadPool pool(2, place, ThreadPool::Placement::kShared);
    pool.Run(8, [](int) {});
    if (AllowedCpus() != place) GTEST_SKIP() << "placing threads is not allowed here";
    pool.FollowCpus();
    EXPECT_EQ(pool.active_threads(), 1);
  }
  EXPECT_EQ(AllowedCpus(), before);
  if (before.size() < 2) return;
  {  // moved by others in between: left alone
    ThreadPool pool(2, place, ThreadPool::Placement::kShared);
    pool.Run(8, [](int) {});
    MoveAllThreads({before[0]});
  }
  EXPECT_EQ(AllowedCpus(), std::vector<int>{before[0]});
  MoveAllThreads(before);
}

TEST(ThreadPool, BadCpuStillRuns) {
  ThreadPool pool(2, {100000});
  std::atomic<int> runs{0};
  pool.Run(10, [&](int) { runs.fetch_add(1); });
  EXPECT_EQ(runs.load(), 10);
}

TEST(ThreadPool, OversubscribedStaysQuick) {
  ThreadPool pool(16);
  std::atomic<uint64_t> sum{0};
  const double start = NowSeconds();
  for (int i = 0; i < 500; ++i) pool.Run(32, [&](int) { sum.fetch_add(1); });
  EXPECT_EQ(sum.load(), 16000u);
  EXPECT_LT(NowSeconds() - start, 5.0);  // milliseconds alone; generous for a loaded machine
}

TEST(ThreadPool, StartAndStopWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace sluice
