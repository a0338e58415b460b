// Where notices go: one process-wide sink set by the command line or an embedder.
//
// Contract: thread-safe; a notice is one line without a newline. The default sink drops everything
// (a library does not print). Errors are returned, never logged instead.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice {

enum class LogLevel { kInfo, kNotice, kWarning };

using LogSink = std::function<void(LogLevel, std::string_view)>;
void SetLogSink(LogSink sink);
void Log(LogLevel level, std::string_view message);
// Each distinct `key` is logged once per process: fallbacks are said out loud, but not repeated.
void LogOnce(LogLevel level, std::string_view key, std::string_view message);

}  // namespace sluice
