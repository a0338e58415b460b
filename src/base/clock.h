// Monotonic time in seconds and nanoseconds, less the time for which the process was stopped.
//
// Contract: thread-safe, never goes back within a thread; only differences mean anything. A process
// that is stopped (SIGSTOP, Ctrl-Z, a phone's background) and continued did nothing meanwhile, so
// rates and remaining times should not count it: whoever handles signals calls NoteContinued when
// SIGCONT comes. Without that a pause counts as time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sluice {

namespace clock_state {
inline std::atomic<uint64_t> stopped_ns{0};
inline thread_local uint64_t seen_ns = 0;  // what this thread was last told
}  // namespace clock_state

inline uint64_t NowNanos() {
  const auto raw = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::steady_clock::now().time_since_epoch())
                       .count();
  const uint64_t stopped = clock_state::stopped_ns.load(std::memory_order_relaxed);
  return clock_state::seen_ns = static_cast<uint64_t>(raw) - stopped;
}
inline double NowSeconds() { return static_cast<double>(NowNanos()) * 1e-9; }

// Safe in a signal handler; on the thread that works and asks for the time while it does. Takes
// what passed since that thread last asked out of the clock, but for a quarter of a second (other
// threads asked a little later, and must not see the clock go back). Less than half a second is no
// pause.
inline void NoteContinued() {
  constexpr uint64_t kPauseMin = 500'000'000, kPauseCounted = 250'000'000;
  const uint64_t seen = clock_state::seen_ns, now = NowNanos();
  if (seen == 0 || now < seen + kPauseMin) return;
  clock_state::stopped_ns.fetch_add(now - seen - kPauseCounted, std::memory_order_relaxed);
  clock_state::seen_ns = seen + kPauseCounted;
}

}  // namespace sluice
