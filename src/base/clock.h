// Monotonic time in seconds and nanoseconds.
//
// Contract: thread-safe, never goes back; only differences mean anything.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

inline uint64_t NowNanos() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}
inline double NowSeconds() { return static_cast<double>(NowNanos()) * 1e-9; }

}  // namespace sluice
