#include "cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/clock.h"

namespace sluice::cli {
namespace {

constexpr double kFirstShown_s = 0.4;  // shorter work needs no bar
constexpr double kBetween_s = 0.1;
constexpr int kBarCells = 24;

bool g_bar_shown = false;
bool g_mid_line = false;  // the last byte on standard output ended no line

bool Coloured() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return IsTerminal(STDERR_FILENO) && !(no_color && *no_color) &&
         !(term && std::strcmp(term, "dumb") == 0);
}

void Err(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// What is said at a terminal while an answer streams begins on a line of its own.
void LeaveLine() {
  if (g_mid_line && IsTerminal(STDOUT_FILENO) && IsTerminal(STDERR_FILENO)) {
    g_mid_line = false;
    Err("\n");
  }
}

size_t Columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string BarLine(const Progress& progress) {
  const double share =
      std::min(1.0, static_cast<double>(progress.done) / static_cast<double>(progress.total));
  const int full = static_cast<int>(share * kBarCells);
  std::string line = fmt::format("{:<8} [{:=>{}}{: >{}}] {:3.0f} %", progress.stage, "", full, "",
                                 kBarCells - full, share * 100);
  if (progress.stage == "load" || progress.stage == "forge") {
    line += fmt::format("  {} of {}", FormatBytes(progress.done), FormatBytes(progress.total));
  } else {
    line += fmt::format("  {} of {}", progress.done, progress.total);
  }
  if (share > 0 && progress.elapsed_s > 0) {
    line += ", " + FormatDuration(progress.elapsed_s * (1 - share) / share) + " left";
  }
  const size_t columns = Columns();
  if (line.size() + 1 > columns) line.resize(columns > 1 ? columns - 1 : 0);
  return line;
}

}  // namespace

bool IsTerminal(int fd) { return isatty(fd) == 1; }

int Fail(const Status& status) {
  ClearProgressBar();
  LeaveLine();
  Err("sluice: error: " + status.ToString() + "\n");
  return static_cast<int>(status.code());
}

void Notice(std::string_view text) {
  ClearProgressBar();
  LeaveLine();
  Err(Dim("sluice: note: " + std::string(text)) + "\n");
}

std::string Dim(std::string_view text) {
  return Coloured() ? "\033[2m" + std::string(text) + "\033[0m" : std::string(text);
}
std::string Bold(std::string_view text) {
  return Coloured() ? "\033[1m" + std::string(text) + "\033[0m" : std::string(text);
}

bool MidLine() { return g_mid_line; }

Status Out(std::string_view text) {
  if (!text.empty()) g_mid_line = text.back() != '\n';
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return Status();
  }
  return Status(Code::kIo, fmt::format("cannot write the result: {}", std::strerror(errno)),
                "standard output");
}

ProgressFn MakeProgressBar() {
  if (!IsTerminal(STDERR_FILENO)) return {};
  return [stage = std::string(), began_s = 0.0, last_s = 0.0](Progress progress) mutable {
    const double now_s = NowSeconds();
    if (stage != progress.stage || progress.done == 0) {
      stage = progress.stage;
      began_s = now_s - progress.elapsed_s;
    }
    // A stage that keeps no time is timed from its first report.
    if (progress.elapsed_s <= 0) progress.elapsed_s = now_s - began_s;
    if (progress.total == 0 || progress.done >= progress.total) {
      ClearProgressBar();
      stage.clear();
      return;
    }
    if (progress.elapsed_s < kFirstShown_s || now_s - last_s < kBetween_s) return;
    last_s = now_s;
    g_bar_shown = true;
    Err("\r\033[K" + BarLine(progress));
  };
}

void ClearProgressBar() {
  if (!g_bar_shown) return;
  g_bar_shown = false;
  Err("\r\033[K");
}

std::string FormatDuration(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  const uint64_t whole = static_cast<uint64_t>(std::min(seconds, 1e9));
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace sluice::cli
