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
//
// threads() is how many there are, active_threads() how many take parts. FollowCpus makes the
// latter the number of processors that all of them may run on: a process that is put on fewer
// (taskset, a phone's background group) does not fight itself, and threads that rest sleep.
#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"

namespace sluice {

class ThreadPool {
 public:
  // kOneEach pins each thread to one processor of the list, in turn; kShared lets all of them run
  // on any of the list.
  enum class Placement { kOneEach, kShared };

  // cpus: where to run; empty leaves the scheduler free. The owner is the first thread: its first
  // Run places it, the destructor restores it unless others have moved it since (threads it starts
  // in between inherit its place). Fewer threads than asked for may start on a starved machine;
  // threads() tells.
  explicit ThreadPool(int threads, const std::vector<int>& cpus = {},
                      Placement placement = Placement::kOneEach);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  int active_threads() const;
  // Owner thread, between two Runs: one system call (more every 16th time, and when something
  // changed). Until its first call all threads are active.
  void FollowCpus();
  void Run(int parts, FunctionRef<void(int part)> fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
