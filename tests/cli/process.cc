#include "tests/cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/test_data.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void Exec(const std::vector<std::string>& args, const ProcessOptions& options) {
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>(SLUICE_BINARY)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(SLUICE_BINARY, argv.data());
  _exit(127);
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Pipes {
  int in[2], out[2], err[2];
};

void BecomeChild(const Pipes& pipes, const std::vector<std::string>& args,
                 const ProcessOptions& options) {
  dup2(pipes.in[0], 0);
  dup2(pipes.out[1], 1);
  dup2(pipes.err[1], 2);
  if (!options.stdout_path.empty()) {
    const int fd = open(options.stdout_path.c_str(), O_WRONLY);
    if (fd >= 0) dup2(fd, 1);
  }
  for (int fd :
       {pipes.in[0], pipes.in[1], pipes.out[0], pipes.out[1], pipes.err[0], pipes.err[1]}) {
    close(fd);
  }
  signal(SIGPIPE, SIG_DFL);
  Exec(args, options);
}

// The signals of the options, each sent once when its time has come.
class Signals {
 public:
  Signals(int pid, const ProcessOptions& options) : pid_(pid), options_(options) {}
  // ms since the start, and since the first output (negative before it).
  void Send(double since_start_ms, double since_output_ms) {
    Once(0, options_.kill_after_ms, since_start_ms, SIGKILL);
    if (since_output_ms < 0) return;
    Once(1, options_.interrupt_after_ms, since_output_ms, SIGINT);
    Once(2, options_.stop_after_ms, since_output_ms, SIGSTOP);
    if (options_.stop_after_ms < 0) return;
    Once(3, options_.stop_after_ms + options_.stop_for_ms, since_output_ms, SIGCONT);
  }

 private:
  void Once(int index, int after_ms, double now_ms, int signal) {
    if (after_ms < 0 || sent_[index] || now_ms < after_ms) return;
    sent_[index] = true;
    kill(pid_, signal);
  }
  int pid_;
  const ProcessOptions& options_;
  bool sent_[4] = {};
};

// Moves bytes until both outputs are closed or time is up.
void Pump(const Pipes& pipes, int pid, const ProcessOptions& options, ProcessResult* result) {
  const auto start = Clock::now();
  auto first_output = Clock::time_point::max();
  size_t written = 0;
  int in = pipes.in[1], out = pipes.out[0], err = pipes.err[0];
  Signals signals(pid, options);
  while (out >= 0 || err >= 0) {
    if (in >= 0 && written == options.input.size()) {
      close(in);
      in = -1;
    }
    pollfd fds[3] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
    poll(fds, 3, options.kill_after_ms < 0 ? 20 : 1);
    if (in >= 0 && (fds[0].revents & (POLLOUT | POLLERR))) {
      const ssize_t n = write(in, options.input.data() + written, options.input.size() - written);
      written = n > 0 ? written + static_cast<size_t>(n) : options.input.size();
    }
    for (auto [fd, text, index] : {std::tuple{&out, &result->out, 1}, {&err, &result->err, 2}}) {
      if (*fd < 0 || !(fds[index].revents & (POLLIN | POLLHUP))) continue;
      char buffer[65536];
      const ssize_t n = read(*fd, buffer, sizeof buffer);
      if (n > 0) {
        text->append(buffer, static_cast<size_t>(n));
        if (first_output == Clock::time_point::max()) first_output = Clock::now();
        continue;
      }
      close(*fd);
      *fd = -1;
    }
    const bool any_output = first_output != Clock::time_point::max();
    signals.Send(Since(start) * 1000, any_output ? Since(first_output) * 1000 : -1);
    if (Since(start) > options.timeout_s) {
      result->timed_out = true;
      kill(pid, SIGKILL);
      break;
    }
  }
  for (int fd : {in, out, err}) {
    if (fd >= 0) close(fd);
  }
}

}  // namespace

ProcessResult Sluice(const std::vector<std::string>& args, const ProcessOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  ProcessResult result;
  Pipes pipes;
  if (pipe(pipes.in) != 0 || pipe(pipes.out) != 0 || pipe(pipes.err) != 0) return result;
  const int pid = fork();
  if (pid == 0) BecomeChild(pipes, args, options);
  close(pipes.in[0]);
  close(pipes.out[1]);
  close(pipes.err[1]);
  Pump(pipes, pid, options, &result);
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  result.code = result.timed_out ? -1 : ExitCode(status);
  result.peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return result;
}

Terminal::Terminal(const std::vector<std::string>& args) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = 200;
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    ProcessOptions options;
    options.environment = {{"TERM", "dumb"}, {"NO_COLOR", "1"}, {"LC_ALL", "C.UTF-8"}};
    Exec(args, options);
  }
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (fd_ >= 0) close(fd_);
}

bool Terminal::ReadSome(double timeout_s) {
  pollfd fd = {fd_, POLLIN, 0};
  if (poll(&fd, 1, static_cast<int>(timeout_s * 1000)) <= 0) return false;
  char buffer[4096];
  const ssize_t n = read(fd_, buffer, sizeof buffer);
  if (n <= 0) return false;
  screen_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool Terminal::WaitFor(const std::string& text, double timeout_s) {
  const auto start = Clock::now();
  while (true) {
    const size_t at = screen_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (Since(start) > timeout_s) return false;
    ReadSome(0.1);
  }
}

void Terminal::Type(const std::string& text) {
  if (write(fd_, text.data(), text.size()) < 0) screen_ += "[cannot type]";
}

int Terminal::WaitExit(double timeout_s) {
  const auto start = Clock::now();
  int status = 0;
  while (Since(start) < timeout_s) {
    ReadSome(0.02);
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      while (ReadSome(0)) {
      }
      return ExitCode(status);
    }
  }
  return -1;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary) << data;
}

bool Exists(const std::string& path) { return std::filesystem::exists(path); }

std::string Shared(const std::string& name) {
  const std::string path = SharedPath(name);
  return Exists(path) ? path : "";
}

std::string DefaultModel() {
  const std::string path = DefaultModelPath();
  return Exists(path) ? path : "";
}

}  // namespace sluice::test
