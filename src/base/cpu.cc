#include "base/cpu.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/limits.h"
#include "base/proc.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace sluice {
namespace {

bool Bit(uint32_t reg, int bit) { return (reg >> bit & 1u) != 0; }

#if defined(__x86_64__)

// Which register files the operating system saves: without that, a feature bit means a crash.
uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

CpuFeatures Detect() {
  X86Registers r;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
  r.leaf1_ecx = c;
  if (Bit(c, 27)) r.xcr0 = ReadXcr0();
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    const unsigned subleaves = a;
    r.leaf7_ebx = b;
    r.leaf7_ecx = c;
    r.leaf7_edx = d;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) r.leaf7_1_eax = a;
  }
  return X86FeaturesOf(r);
}

// Palette 1 of the manual: eight tiles of sixteen rows of 64 bytes. The kernels assume it.
bool HasFirstPalette() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a < 1) return false;
  if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) return false;
  return b >> 16 >= 8 && (b & 0xffff) >= 64 && (c & 0xffff) >= 16;
}

bool AskForTiles() {
#if defined(SYS_arch_prctl)
  // Numbers of the kernel's ABI (Linux 5.16), absent from older headers.
  constexpr int kGetPermission = 0x1022, kRequestPermission = 0x1023;  // ARCH_*_XCOMP_PERM
  constexpr unsigned long kTileData = 18;                              // XFEATURE_XTILEDATA
  if (!HasFirstPalette()) return false;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  unsigned long granted = 0;
  return syscall(SYS_arch_prctl, kGetPermission, &granted) == 0 && (granted >> kTileData & 1) != 0;
#else
  return false;
#endif
}

#elif defined(__aarch64__)

// Bits of the kernel's arm64 hwcap ABI, by number: older libc headers lack the newer names.
constexpr unsigned long kHwcapAsimd = 1ul << 1, kHwcapAsimdDp = 1ul << 20, kHwcap2I8mm = 1ul << 13;

CpuFeatures Detect() {
  CpuFeatures f;
  const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  f.neon = (hwcap & kHwcapAsimd) != 0;
  f.dotprod = f.neon && (hwcap & kHwcapAsimdDp) != 0;
  f.i8mm = f.neon && (hwcap2 & kHwcap2I8mm) != 0;
  return f;
}

#else

CpuFeatures Detect() { return {}; }

#endif

}  // namespace

CpuFeatures X86FeaturesOf(const X86Registers& r) {
  CpuFeatures f;
  const bool os_avx = (r.xcr0 & 0x6) == 0x6;          // SSE and AVX state
  const bool os_avx512 = (r.xcr0 & 0xe6) == 0xe6;     // plus opmask and both halves of ZMM
  const bool os_amx = (r.xcr0 & 0x60000) == 0x60000;  // tile configuration and data
  if (!Bit(r.leaf1_ecx, 27) || !Bit(r.leaf1_ecx, 28) || !os_avx) return f;  // OSXSAVE, AVX
  f.fma = Bit(r.leaf1_ecx, 12);
  f.f16c = Bit(r.leaf1_ecx, 29);
  const uint32_t b = r.leaf7_ebx, c = r.leaf7_ecx, d = r.leaf7_edx;
  f.avx2 = Bit(b, 5);
  f.avx_vnni = f.avx2 && Bit(r.leaf7_1_eax, 4);
  f.avx512 = os_avx512 && Bit(b, 16) && Bit(b, 17) && Bit(b, 30) && Bit(b, 31);
  f.avx512_vnni = f.avx512 && Bit(c, 11);
  f.avx512_bf16 = f.avx512 && Bit(r.leaf7_1_eax, 5);
  f.avx512_fp16 = f.avx512 && Bit(d, 23);
  f.amx_int8 = os_amx && Bit(d, 24) && Bit(d, 25);
  f.amx_bf16 = os_amx && Bit(d, 24) && Bit(d, 22);
  return f;
}

bool RequestAmxTiles() {
#if defined(__x86_64__)
  static const bool granted = GetCpuFeatures().amx_int8 && AskForTiles();
  return granted;
#else
  return false;
#endif
}

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

uint64_t PageBytes() {
  static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  // Machines with more than 1024 processors refuse the fixed cpu_set_t: grow until the kernel is
  // content.
  for (int capacity = CPU_SETSIZE; capacity <= (1 << 16); capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    const bool read = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; read && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (read) break;
  }
  if (cpus.empty()) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < std::max(1L, online); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int DefaultThreads() {
  const int fast = static_cast<int>(proc::PerformanceCpus("", AllowedCpus()).size());
  const int quota = proc::CpuQuota("").value_or(fast);
  return std::clamp(std::min(fast, quota), 1, static_cast<int>(limits::kThreadsMax));
}

bool RestrictThread(pthread_t thread, const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
  }
  return pthread_setaffinity_np(thread, sizeof(set), &set) == 0;  // refuses an empty set
}

bool CanRunOn(int cpu) {
  cpu_set_t before;
  const pthread_t self = pthread_self();
  if (pthread_getaffinity_np(self, sizeof(before), &before) != 0) return true;  // too many to tell
  if (!RestrictThread(self, {cpu})) return false;
  pthread_setaffinity_np(self, sizeof(before), &before);
  return true;
}

CpuRoles ChooseCpuRoles(const std::vector<int>& asked, int threads) {
  return proc::ChooseCpuRoles("", AllowedCpus(), asked, threads);
}

MemoryStatus ReadMemoryStatus() { return proc::ReadMemoryStatus(""); }

ProcessMemory ReadProcessMemory() {
  ProcessMemory memory;
  if (const auto status = proc::ReadText("/proc/self/status")) {
    memory.rss_bytes = proc::KibField(*status, "VmRSS").value_or(0);
    memory.peak_rss_bytes = proc::KibField(*status, "VmHWM").value_or(0);
  }
  return memory;
}

}  // namespace sluice
