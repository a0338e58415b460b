#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

namespace sluice::cli {
namespace {

std::atomic<bool> g_cancel{false};
std::atomic<bool> g_terminate{false};
std::atomic<bool> g_prompt_interrupt{false};
std::atomic<int> g_working{0}, g_prompting{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) {
  if (signal == SIGTERM) g_terminate = true;
  if (g_working > 0) {
    if (!g_cancel.exchange(true) || signal != SIGINT) return;
  } else if (g_prompting > 0 && signal == SIGINT) {
    g_prompt_interrupt = true;
    return;
  }
  _exit(128 + signal);  // as shells report a death by signal
}

void OnContinue(int) { NoteContinued(); }

}  // namespace

void InstallInterrupt() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a waiting read must return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = OnContinue;
  action.sa_flags = SA_RESTART;
  sigaction(SIGCONT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error, reported as one
}

std::atomic<bool>* CancelFlag() { return &g_cancel; }
bool TerminateRequested() { return g_terminate; }

WorkScope::WorkScope() {
  g_cancel = false;
  ++g_working;
}
WorkScope::~WorkScope() { --g_working; }

PromptScope::PromptScope() { ++g_prompting; }
PromptScope::~PromptScope() { --g_prompting; }

bool PromptInterrupted() { return g_prompt_interrupt; }
bool TakePromptInterrupt() { return g_prompt_interrupt.exchange(false); }

}  // namespace sluice::cli
