#include "base/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "base/bytes.h"

namespace sluice {
namespace {

// The kernel lists a feature only when it also saves its registers: our probe must agree word for
// word.
TEST(Cpu, FeaturesMatchTheKernelsList) {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line)) {
    if (line.rfind("flags", 0) == 0) flags = line + " ";
  }
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo (emulated processor?)";
  const auto has = [&](const char* name) {
    return flags.find(std::string(" ") + name + " ") != std::string::npos;
  };
  const CpuFeatures& f = GetCpuFeatures();
  EXPECT_EQ(f.avx2, has("avx2"));
  EXPECT_EQ(f.fma, has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx_vnni, has("avx_vnni"));
  EXPECT_EQ(f.avx512, has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq"));
  EXPECT_EQ(f.avx512_vnni, f.avx512 && has("avx512_vnni"));
  EXPECT_EQ(f.avx512_bf16, f.avx512 && has("avx512_bf16"));
  EXPECT_EQ(f.avx512_fp16, f.avx512 && has("avx512_fp16"));
  EXPECT_EQ(f.amx_int8, has("amx_tile") && has("amx_int8"));
  EXPECT_EQ(f.amx_bf16, has("amx_tile") && has("amx_bf16"));
  EXPECT_FALSE(f.neon);
#elif defined(__aarch64__)
  EXPECT_TRUE(GetCpuFeatures().neon);
  EXPECT_FALSE(GetCpuFeatures().avx2);
#else
  GTEST_SKIP() << "no probe for this processor";
#endif
}

TEST(Cpu, AllowedFollowsAffinity) {
  const std::vector<int> all = AllowedCpus();
  ASSERT_FALSE(all.empty());
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(all.back()), &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) GTEST_SKIP() << "pinning is not allowed here";
  EXPECT_EQ(AllowedCpus(), std::vector<int>{all.back()});
  EXPECT_EQ(DefaultThreads(), 1);
  sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(AllowedCpus(), all);
}

TEST(Cpu, AskingForAPlaceLeavesTheThreadWhereItIs) {
  const std::vector<int> before = AllowedCpus();
  for (const int cpu : before) EXPECT_TRUE(CanRunOn(cpu)) << cpu;
  EXPECT_FALSE(CanRunOn(1023));  // of 1024 processors the last
  EXPECT_FALSE(CanRunOn(100000));
  EXPECT_FALSE(CanRunOn(-1));
  EXPECT_EQ(AllowedCpus(), before);
}

TEST(Cpu, DefaultThreadsStayWithinTheAllowed) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), static_cast<int>(AllowedCpus().size()));
}

TEST(Cpu, PeakSeesTouchedMemoryAndRssSeesItGo) {
  constexpr size_t kBytes = 64 << 20;
  const ProcessMemory before = ReadProcessMemory();
  ASSERT_GT(before.rss_bytes, 0u);
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  const ProcessMemory during = ReadProcessMemory();
  munmap(block, kBytes);
  const ProcessMemory after = ReadProcessMemory();
  EXPECT_GT(during.rss_bytes, before.rss_bytes + kBytes / 2);
  EXPECT_GE(during.peak_rss_bytes, during.rss_bytes);
  EXPECT_LT(after.rss_bytes, during.rss_bytes - kBytes / 2);
  // Some kernels keep these counters in per-thread batches: a little slack.
  EXPECT_GE(after.peak_rss_bytes + kMiB, during.peak_rss_bytes);
}

TEST(Cpu, MachineMemoryIsPlausible) {
  const MemoryStatus status = ReadMemoryStatus();
  EXPECT_GT(status.total_bytes, 64 * kMiB);
  EXPECT_GT(status.available_bytes, 0u);
  EXPECT_LE(status.available_bytes, status.total_bytes);
  EXPECT_EQ(PageBytes() & (PageBytes() - 1), 0u);
}

}  // namespace
}  // namespace sluice
