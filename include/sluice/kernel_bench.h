// Kernels on their own: how fast each leaf of one instruction set runs here, beside what the
// machine can do at best. No model is needed.
//
// Contract: blocks for seconds_max at most (about); takes a quarter of the free memory at most.
// Not thread-safe with itself: it measures the whole machine. Rates are the best of several short
// runs, because a neighbour can only slow a run down.
#pragma once

#include <string>
#include <vector>

#include "sluice/status.h"

namespace sluice {

struct KernelBenchOptions {
  std::string isa;  // empty: the best
  int threads = 0;  // 0: performance cores
  double seconds_max = 20;
};

struct KernelRate {
  std::string kernel;   // "matmul, 1 token"
  std::string variant;  // weight type, KV format, or size
  double value = 0;
  std::string unit;  // "GB/s", "GOP/s", "us"
  double peak = 0;   // in the same unit; 0: none
};

struct KernelBench {
  std::string isa;
  int threads = 0;
  double memory_gb_s = 0, memory_one_gb_s = 0;  // plain reads: all threads, one
  double int8_gop_s = 0, f32_gop_s = 0;         // products on registers, all threads
  std::vector<KernelRate> rates;
};

// kUsage for an instruction set that is not available; kFailed when there is no memory for the
// working set.
Result<KernelBench> BenchKernels(const KernelBenchOptions& options);

}  // namespace sluice
