// What /proc, /sys and the cgroup file systems say, as pure parsing plus readers under a root
// prefix.
//
// Contract: thread-safe, no state. Text parsers never trust their input: a missing or odd field is
// nullopt or an empty list, never a guess. `root` is prefixed to absolute paths ("" on a real
// machine), so tests can plant a whole tree. Both cgroup versions are walked from the process's
// group up to the mount point, because the tightest limit may sit at any level.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"

namespace sluice::proc {

// The file's text, at most 1 MiB; nullopt when it cannot be read.
std::optional<std::string> ReadText(const std::string& path);

// "MemTotal:  2048 kB" with key "MemTotal" -> 2097152 (the format of meminfo and /proc/PID/status).
std::optional<uint64_t> KibField(std::string_view text, std::string_view key);

// "inactive_file 4096" with key "inactive_file" -> 4096 (the format of memory.stat).
std::optional<uint64_t> StatField(std::string_view text, std::string_view key);

// "0-3,5" -> {0,1,2,3,5}; empty when malformed.
std::vector<int> CpuList(std::string_view text);

// A cgroup limit file: "max" and v1's "no limit" (within a page of 2^63) are nullopt.
std::optional<uint64_t> CgroupLimit(std::string_view text);

struct CgroupDir {
  std::string path;  // as the process sees it, without the root prefix
  bool v2 = false;
};
// The directories of `controller` ("memory", "cpu") for a process, leaf first, up to the mount
// points. A group outside the mounted subtree (a container without a cgroup namespace) is taken as
// the mount point.
std::vector<CgroupDir> CgroupDirs(std::string_view self_cgroup, std::string_view mountinfo,
                                  std::string_view controller);

MemoryStatus ReadMemoryStatus(const std::string& root);

// CPUs worth of time per period that the cpu controller concedes, rounded up; nullopt without a
// quota.
std::optional<int> CpuQuota(const std::string& root);

// The members of `allowed` that are performance cores; all of them when the machine tells no
// difference.
std::vector<int> PerformanceCpus(const std::string& root, const std::vector<int>& allowed);

// See base/cpu.h.
CpuRoles ChooseCpuRoles(const std::string& root, const std::vector<int>& allowed,
                        const std::vector<int>& asked, int threads);

}  // namespace sluice::proc
