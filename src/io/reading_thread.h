// What every thread of a queue does first.
//
// Contract: called once, on that thread.
#pragma once

#include <pthread.h>

#include <vector>

#include "base/cpu.h"
#include "base/log.h"

namespace sluice {

// Names the thread and keeps it on these processors (none: wherever it may run).
inline void BeginReadingThread(const std::vector<int>& cpus) {
  pthread_setname_np(pthread_self(), "sluice-io");
  if (cpus.empty() || RestrictThread(pthread_self(), cpus)) return;
  LogOnce(LogLevel::kInfo, "io.cpus", "reading threads run where the system puts them");
}

}  // namespace sluice
