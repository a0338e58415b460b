// What this processor and this process's share of the machine can do, probed at run time.
//
// Contract: thread-safe; nothing is assumed at compile time. Memory figures honour cgroup v1 and v2
// limits.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avx_vnni = false;
  bool avx512 = false /* F, BW, VL, DQ */, avx512_vnni = false, avx512_bf16 = false,
       avx512_fp16 = false;
  bool amx_int8 = false, amx_bf16 = false;  // usable only after RequestAmxTiles()
  bool neon = false, dotprod = false, i8mm = false;
};
const CpuFeatures& GetCpuFeatures();

// What CPUID and XCR0 say of an x86 processor, and what follows from it: a feature counts only when
// the operating system saves the registers it needs. Pure, so that tests can play any processor.
struct X86Registers {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;  // 0 without OSXSAVE
};
CpuFeatures X86FeaturesOf(const X86Registers& registers);

// Asks the kernel, once per process, to let its threads use AMX tiles (Linux enlarges signal frames
// for that). False: no such processor, kernel or permission. Tiles must not be touched before it
// said true.
bool RequestAmxTiles();

uint64_t PageBytes();            // asked, never assumed: 16 KiB pages exist
std::vector<int> AllowedCpus();  // sched_getaffinity
int DefaultThreads();            // performance cores among the allowed ones

// Lets a thread run on these processors only. False when the kernel refuses or none exists.
bool RestrictThread(pthread_t thread, const std::vector<int>& cpus);

// Whether the calling thread could be put on this processor: it exists, is online, and neither a
// cpuset nor a sandbox forbids it. The thread stays where it is.
bool CanRunOn(int cpu);

// Where threads run. Empty lists: wherever the scheduler likes.
struct CpuRoles {
  std::vector<int> compute, io;
  bool one_each = false;  // each compute thread on one of `compute`, in turn; else on any of them
};
// asked (--cpus) wins for the compute threads. Otherwise, where the machine tells fast from slow
// processors and `threads` fit onto the fast ones, they compute; the slow ones read. A uniform
// machine: no restriction.
CpuRoles ChooseCpuRoles(const std::vector<int>& asked, int threads);

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
