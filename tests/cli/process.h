// Runs the built program as a user does: argv in, exit code, stdout and stderr apart, with a time
// limit.
//
// Contract: blocking; kills the child at the limit (code -1, timed_out). Environment entries are
// added to the test's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/temp_folder.h"

namespace sluice::test {

struct ProcessOptions {
  std::string input;  // standard input, then end of file
  std::vector<std::pair<std::string, std::string>> environment;
  double timeout_s = 60;
  std::string stdout_path;      // instead of the pipe
  int interrupt_after_ms = -1;  // SIGINT this long after the first byte of output
  int kill_after_ms = -1;       // SIGKILL this long after the start
  int stop_after_ms = -1;       // SIGSTOP this long after the first byte of output,
  int stop_for_ms = 0;          // then SIGCONT
};

struct ProcessResult {
  int code = -1;  // exit code; 128 + signal when killed by one
  bool timed_out = false;
  std::string out, err;
  uint64_t peak_rss_bytes = 0;
};

ProcessResult Sluice(const std::vector<std::string>& args, const ProcessOptions& options = {});

// A conversation at a pseudo-terminal: waits for text, types, and returns all output.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& args);
  ~Terminal();
  // Everything printed until `text` appears in what came after the last wait; false at the time
  // limit.
  bool WaitFor(const std::string& text, double timeout_s = 30);
  void Type(const std::string& text);
  int WaitExit(double timeout_s = 30);  // exit code, -1 at the time limit
  const std::string& screen() const { return screen_; }

 private:
  bool ReadSome(double timeout_s);
  int fd_ = -1, pid_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

std::string ReadFile(const std::string& path);  // "" when absent
void WriteFile(const std::string& path, const std::string& data);
bool Exists(const std::string& path);

// SharedPath(name); "" when it is not there.
std::string Shared(const std::string& name);
// The small instruct model that setup fetches; "" when it is not there.
std::string DefaultModel();

}  // namespace sluice::test
