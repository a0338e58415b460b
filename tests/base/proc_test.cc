#include "base/proc.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/bytes.h"
#include "tests/temp_folder.h"

namespace sluice::proc {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeminfo =
    "MemTotal:        8388608 kB\nMemFree: 5 kB\nMemAvailable:    4194304 kB\n";
constexpr const char* kV2Mount =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kV1Mount =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

std::vector<std::string> Paths(const std::vector<CgroupDir>& dirs) {
  std::vector<std::string> paths;
  for (const CgroupDir& dir : dirs) paths.push_back((dir.v2 ? "2 " : "1 ") + dir.path);
  return paths;
}

TEST(Proc, KibField) {
  EXPECT_EQ(KibField(kMeminfo, "MemTotal"), 8 * kGiB);
  EXPECT_EQ(KibField(kMeminfo, "MemAvailable"), 4 * kGiB);
  EXPECT_EQ(KibField(kMeminfo, "Mem"), std::nullopt);
  EXPECT_EQ(KibField("VmHWM:\t   12 kB", "VmHWM"), 12 * kKiB);
  EXPECT_EQ(KibField("VmHWM:\t   12 MB", "VmHWM"), std::nullopt);
  EXPECT_EQ(KibField("VmHWM: -1 kB", "VmHWM"), std::nullopt);
  EXPECT_EQ(KibField("VmHWM: 99999999999999999999 kB", "VmHWM"), std::nullopt);
  EXPECT_EQ(KibField("VmHWM:", "VmHWM"), std::nullopt);
  EXPECT_EQ(KibField("", ""), std::nullopt);
}

TEST(Proc, CpuList) {
  EXPECT_EQ(CpuList("0-3,5\n"), (std::vector<int>{0, 1, 2, 3, 5}));
  EXPECT_EQ(CpuList("7"), std::vector<int>{7});
  for (const char* bad : {"", "a", "3-1", "-1", "0-99999999", "1,,2"})
    EXPECT_TRUE(CpuList(bad).empty()) << bad;
}

TEST(Proc, CgroupLimit) {
  EXPECT_EQ(CgroupLimit("max\n"), std::nullopt);
  EXPECT_EQ(CgroupLimit("9223372036854771712\n"), std::nullopt);  // v1, 4 KiB pages
  EXPECT_EQ(CgroupLimit("9223372036854710272\n"), std::nullopt);  // v1, 64 KiB pages
  EXPECT_EQ(CgroupLimit("75497472\n"), 72 * kMiB);
  EXPECT_EQ(CgroupLimit(""), std::nullopt);
}

TEST(Proc, CgroupDirsWalkUp) {
  EXPECT_EQ(Paths(CgroupDirs("0::/user/job\n", kV2Mount, "memory")),
            (std::vector<std::string>{"2 /sys/fs/cgroup/user/job", "2 /sys/fs/cgroup/user",
                                      "2 /sys/fs/cgroup"}));
  EXPECT_EQ(Paths(CgroupDirs("4:memory:/job\n1:cpu,cpuacct:/x\n0::/\n", kV1Mount, "memory")),
            (std::vector<std::string>{"1 /sys/fs/cgroup/memory/job", "1 /sys/fs/cgroup/memory"}));
  EXPECT_EQ(
      Paths(CgroupDirs("1:cpu,cpuacct:/x\n", kV1Mount, "cpu")),
      (std::vector<std::string>{"1 /sys/fs/cgroup/cpu,cpuacct/x", "1 /sys/fs/cgroup/cpu,cpuacct"}));
}

TEST(Proc, CgroupDirsInAContainer) {
  // Without a cgroup namespace the mount shows the host's group as its root.
  const char* mount = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  EXPECT_EQ(Paths(CgroupDirs("4:memory:/docker/ab\n", mount, "memory")),
            std::vector<std::string>{"1 /sys/fs/cgroup/memory"});
  EXPECT_EQ(Paths(CgroupDirs("4:memory:/docker/ab/in\n", mount, "memory")),
            (std::vector<std::string>{"1 /sys/fs/cgroup/memory/in", "1 /sys/fs/cgroup/memory"}));
  EXPECT_EQ(Paths(CgroupDirs("4:memory:/docker/abc\n", mount, "memory")),
            std::vector<std::string>{"1 /sys/fs/cgroup/memory"});
  EXPECT_EQ(Paths(CgroupDirs("0::/../other\n", kV2Mount, "memory")),
            std::vector<std::string>{"2 /sys/fs/cgroup"});
}

TEST(Proc, CgroupDirsOddText) {
  for (const char* odd : {"", ":", "::", "0::", "0::job", "4:memory", "\n\n", "4:memory:/a"}) {
    EXPECT_TRUE(CgroupDirs(odd, kV2Mount, "memory").empty()) << odd;
  }
  EXPECT_TRUE(CgroupDirs("0::/a\n", "", "memory").empty());
  EXPECT_TRUE(CgroupDirs("0::/a\n", "30 - cgroup2\n - cgroup2 x y\n", "memory").empty());
  const char* blank = "30 23 0:26 / /mnt/c\\040g rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(Paths(CgroupDirs("0::/\n", blank, "memory")), std::vector<std::string>{"2 /mnt/c g"});
}

TEST(Proc, TightestV2LimitWinsAtAnyLevel) {
  const test::TempFolder root;
  root.Write("/proc/meminfo", kMeminfo);
  root.Write("/proc/self/cgroup", "0::/user/job\n");
  root.Write("/proc/self/mountinfo", kV2Mount);
  root.Write("/sys/fs/cgroup/user/job/memory.max", "max\n");
  root.Write("/sys/fs/cgroup/user/memory.max", "1048576\n");
  root.Write("/sys/fs/cgroup/user/memory.current", "524288\n");
  root.Write("/sys/fs/cgroup/user/memory.stat", "anon 100\ninactive_file 24288\n");
  const MemoryStatus status = ReadMemoryStatus(root.path());
  EXPECT_EQ(status.total_bytes, 8 * kGiB);
  EXPECT_EQ(status.available_bytes, 4 * kGiB);
  EXPECT_EQ(status.cgroup_limit_bytes, kMiB);
  EXPECT_EQ(status.cgroup_used_bytes, 500'000u);
}

TEST(Proc, V1LimitAndHybridMount) {
  const test::TempFolder root;
  root.Write("/proc/meminfo", kMeminfo);
  root.Write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  root.Write(
      "/proc/self/mountinfo",
      std::string(kV1Mount) + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  root.Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "75497472\n");
  root.Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4096000\n");
  root.Write("/sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 1\ntotal_inactive_file 96000\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryStatus status = ReadMemoryStatus(root.path());
  EXPECT_EQ(status.cgroup_limit_bytes, 72 * kMiB);
  EXPECT_EQ(status.cgroup_used_bytes, 4'000'000u);
}

TEST(Proc, NoLimitAndNoProc) {
  const test::TempFolder root;
  const MemoryStatus nothing = ReadMemoryStatus(root.path());
  EXPECT_EQ(nothing.total_bytes, 0u);
  EXPECT_EQ(nothing.cgroup_limit_bytes, 0u);
  root.Write("/proc/meminfo", kMeminfo);
  root.Write("/proc/self/cgroup", "0::/\n");
  root.Write("/proc/self/mountinfo", kV2Mount);
  root.Write("/sys/fs/cgroup/memory.max", "17179869184\n");  // more than the machine has: no limit
  EXPECT_EQ(ReadMemoryStatus(root.path()).cgroup_limit_bytes, 0u);
}

TEST(Proc, CpuQuota) {
  const test::TempFolder root;
  EXPECT_EQ(CpuQuota(root.path()), std::nullopt);
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.Write("/proc/self/mountinfo", kV2Mount);
  root.Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(CpuQuota(root.path()), std::nullopt);
  root.Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(CpuQuota(root.path()), 2);
  root.Write("/proc/self/cgroup", "1:cpu,cpuacct:/x\n");
  root.Write("/proc/self/mountinfo", kV1Mount);
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root.path()), std::nullopt);
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(CpuQuota(root.path()), 1);
}

TEST(Proc, PerformanceCpus) {
  const test::TempFolder root;
  const auto put = [&](int cpu, const char* file, const char* text) {
    root.Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file, text);
  };
  const std::vector<int> all = {0, 1, 2, 3};
  EXPECT_EQ(PerformanceCpus(root.path(), all), all);
  EXPECT_TRUE(PerformanceCpus(root.path(), {}).empty());

  for (int cpu : all) put(cpu, "cpufreq/cpuinfo_max_freq", cpu < 2 ? "5200000" : "3800000");
  EXPECT_EQ(PerformanceCpus(root.path(), all), (std::vector<int>{0, 1}));
  EXPECT_EQ(PerformanceCpus(root.path(), {2, 3}), (std::vector<int>{2, 3}));

  const char* capacities[] = {"1024", "870", "320", "320"};  // a phone: prime, big, little
  for (int cpu : all) put(cpu, "cpu_capacity", capacities[cpu]);
  EXPECT_EQ(PerformanceCpus(root.path(), all), (std::vector<int>{0, 1}));
}

TEST(Proc, CpuRoles) {
  const test::TempFolder root;
  const std::vector<int> all = {0, 1, 2, 3}, none;
  const auto roles = [&](const std::vector<int>& allowed, const std::vector<int>& asked,
                         int threads) {
    return ChooseCpuRoles(root.path(), allowed, asked, threads);
  };
  // Nothing is known, then all are alike: no restriction.
  for (int round = 0; round < 2; ++round) {
    const CpuRoles free = roles(all, none, 4);
    EXPECT_EQ(free.compute, none);
    EXPECT_EQ(free.io, none);
    const CpuRoles asked = roles(all, {2, 0}, 2);
    EXPECT_EQ(asked.compute, (std::vector<int>{2, 0}));
    EXPECT_TRUE(asked.one_each);
    EXPECT_EQ(asked.io, none);
    for (int cpu : all)
      root.Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", "1024");
  }
  // A phone: 2 and 3 are big.
  for (int cpu : {0, 1})
    root.Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", "250");
  const CpuRoles phone = roles(all, none, 2);
  EXPECT_EQ(phone.compute, (std::vector<int>{2, 3}));
  EXPECT_FALSE(phone.one_each);
  EXPECT_EQ(phone.io, (std::vector<int>{0, 1}));
  EXPECT_EQ(roles(all, none, 1).compute, (std::vector<int>{2, 3}));
  // More threads than big cores, or only one kind allowed: everything runs everywhere.
  EXPECT_EQ(roles(all, none, 3).compute, none);
  EXPECT_EQ(roles(all, none, 3).io, none);
  EXPECT_EQ(roles({0, 1}, none, 2).compute, none);
  EXPECT_EQ(roles({2, 3}, none, 2).io, none);
  // --cpus wins; reading keeps off what was asked for.
  const CpuRoles asked = roles(all, {0, 2}, 2);
  EXPECT_EQ(asked.compute, (std::vector<int>{0, 2}));
  EXPECT_EQ(asked.io, (std::vector<int>{1}));
  EXPECT_EQ(roles(all, {0, 1}, 2).io, none);
}

TEST(Proc, ReadTextOfMissingFile) {
  EXPECT_EQ(ReadText("/nonexistent/file"), std::nullopt);
  EXPECT_EQ(ReadText("/"), std::nullopt);  // a folder
}

}  // namespace
}  // namespace sluice::proc
