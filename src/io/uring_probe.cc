#include "io/uring_probe.h"

#include <errno.h>
#include <fmt/core.h>
#include <liburing.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice {
namespace {

constexpr int kProbeMillisMax = 3000;

// In the child: system calls and liburing only (neither allocates). Returns 0 or an errno. Every
// call the queue will make is made once, registration included; a filter may let setup pass and
// kill enter.
int TryRing() {
  io_uring ring;
  int error = io_uring_queue_init(4, &ring, 0);
  if (error < 0) return -error;
  int ends[2];
  if (pipe(ends) != 0) return errno;
  const int files[1] = {ends[0]};
  io_uring_register_files(&ring, files, 1);  // the queue does without when this is refused
  if (write(ends[1], "x", 1) != 1) return EIO;
  char byte = 0;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  io_uring_prep_read(sqe, ends[0], &byte, 1, 0);  // IORING_OP_READ is Linux 5.6; 5.1 answers EINVAL
  error = io_uring_submit(&ring);
  if (error < 0) return -error;
  io_uring_cqe* cqe = nullptr;
  error = io_uring_wait_cqe(&ring, &cqe);
  if (error < 0) return -error;
  if (cqe->res < 0) return -cqe->res;
  return byte == 'x' ? 0 : EIO;
}

[[noreturn]] void Child(int out) {
  // No core file and no crash report of a child that was meant to die.
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(SIGSYS, SIG_DFL);
  const unsigned char answer = static_cast<unsigned char>(TryRing());
  const ssize_t ignored = write(out, &answer, 1);
  (void)ignored;
  _exit(0);
}

UringProbe Ask() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return {false, fmt::format("no pipe for its probe: {}", strerror(errno))};
  const pid_t child = fork();
  if (child == 0) Child(ends[1]);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return {false, fmt::format("cannot start its probe: {}", strerror(errno))};
  }
  pollfd waiting = {ends[0], POLLIN, 0};
  int ready;
  do {
    ready = poll(&waiting, 1, kProbeMillisMax);
  } while (ready < 0 && errno == EINTR);
  unsigned char answer = 0;
  const ssize_t got = ready > 0 ? read(ends[0], &answer, 1) : -1;
  close(ends[0]);
  if (ready <= 0) kill(child, SIGKILL);
  int ignored = 0;
  while (waitpid(child, &ignored, 0) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return {false, "its probe hung"};
  if (got != 1) return {false, "the system kills processes that call it"};
  if (answer != 0) return {false, strerror(answer)};
  return {true, ""};
}

}  // namespace

const UringProbe& ProbeUring() {
  static const UringProbe probe = Ask();
  return probe;
}

}  // namespace sluice
