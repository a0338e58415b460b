// A persistent pool that runs one data-parallel job at a time.
//
// Contract: Run(parts, fn) calls fn(part) for part = 0..parts-1, each once, on the pool's threads
// and the caller; returns when all are done. Parts are claimed dynamically, so a result must not
// depend on which thread ran a part (promise 2: rows and heads are split over threads, sums are
// not). One Run at a time, from the owner thread, never from within fn. No allocation in Run.
// Waiting threads spin about 5 us (not at all when there are more threads than processors), then
// park on a futex, so a busy machine is not burdened; Run waits for parts, not for threads, so a
// worker that wakes late delays nobody. threads = 1 runs inline without any thread. Workers take no
// signals.
#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"

namespace sluice {

class ThreadPool {
 public:
  // cpus: processors to pin to, one per thread in turn; empty leaves the scheduler free. The owner
  // is the first of them: its first Run pins it, the destructor restores it (threads it starts in
  // between inherit the pin). Fewer threads than asked for may start on a starved machine;
  // threads() tells.
  explicit ThreadPool(int threads, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  void Run(int parts, FunctionRef<void(int part)> fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
