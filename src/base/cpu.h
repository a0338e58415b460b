// What this processor and this process's share of the machine can do, probed at run time.
//
// Contract: thread-safe; nothing is assumed at compile time. Memory figures honour cgroup v1 and v2
// limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avx_vnni = false;
  bool avx512 = false /* F, BW, VL, DQ */, avx512_vnni = false, avx512_bf16 = false,
       avx512_fp16 = false;
  bool amx_int8 = false, amx_bf16 = false;  // the tile permission is asked for where they are used
  bool neon = false, dotprod = false, i8mm = false;
};
const CpuFeatures& GetCpuFeatures();

uint64_t PageBytes();            // asked, never assumed: 16 KiB pages exist
std::vector<int> AllowedCpus();  // sched_getaffinity
int DefaultThreads();            // performance cores among the allowed ones

struct MemoryStatus {
  uint64_t total_bytes = 0;      // of the machine
  uint64_t available_bytes = 0;  // MemAvailable
  uint64_t cgroup_limit_bytes =
      0;  // smallest limit of the process's memory cgroups (v1 and v2); 0: none
  uint64_t cgroup_used_bytes =
      0;  // of that cgroup, without the file pages it would give back at once
};
MemoryStatus ReadMemoryStatus();

struct ProcessMemory {
  uint64_t rss_bytes = 0, peak_rss_bytes = 0;  // VmRSS, VmHWM
};
ProcessMemory ReadProcessMemory();

}  // namespace sluice
