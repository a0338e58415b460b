#include "base/log.h"

#include <mutex>
#include <set>
#include <utility>

namespace sluice {
namespace {

// Recursive: a sink may itself call something that logs. Leaked on purpose, so that threads that
// outlive main's statics can still log.
struct LogState {
  std::recursive_mutex mutex;
  LogSink sink;
  std::set<std::string, std::less<>> seen;
};

LogState& State() {
  static LogState* state = new LogState;
  return *state;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard lock(State().mutex);
  State().sink = std::move(sink);
}

void Log(LogLevel level, std::string_view message) {
  std::lock_guard lock(State().mutex);
  if (State().sink) State().sink(level, message);
}

void LogOnce(LogLevel level, std::string_view key, std::string_view message) {
  std::lock_guard lock(State().mutex);
  if (State().seen.find(key) != State().seen.end()) return;
  State().seen.emplace(key);
  Log(level, message);
}

}  // namespace sluice
