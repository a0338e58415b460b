// A persistent pool that runs one data-parallel job at a time.
//
// Contract: Run(parts, fn) calls fn(part) for part = 0..parts-1, each once, on the pool's threads and the
// caller; returns when all are done. Parts are claimed dynamically, so a result must not depend on which
// thread ran a part (promise 2: rows and heads are split over threads, sums are not). One Run at a time,
// from the owner thread. No allocation in Run. Waiting threads spin briefly (kSpinIterations), then park on
// a futex, so a busy machine is not burdened. threads = 1 runs inline without any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"

namespace sluice {

class ThreadPool {
 public:
  // cpus: processors to pin to, one per thread in turn; empty leaves the scheduler free.
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
