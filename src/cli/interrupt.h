// Ctrl-C: the first one stops the work at hand, a second one while it is still stopping ends the
// program.
//
// Contract: InstallInterrupt once, from main. The flag is what Generate and Append take as
// `cancel`. The handler only stores flags and calls _exit. Reads that wait for the terminal return
// with EINTR. SIGCONT takes the pause out of the clock.
#pragma once

#include <atomic>

namespace sluice::cli {

void InstallInterrupt();
// True once SIGINT or SIGTERM came while work was under way.
std::atomic<bool>* CancelFlag();
// True if SIGTERM came: leave after the work at hand.
bool TerminateRequested();

// Counts as work: within its scope an interrupt sets the flag. Clears the flag when it begins.
class WorkScope {
 public:
  WorkScope();
  ~WorkScope();
};
// Within its scope the program waits for a line: an interrupt only ends the wait. Outside of both
// scopes an interrupt ends the program.
class PromptScope {
 public:
  PromptScope();
  ~PromptScope();
};
bool PromptInterrupted();
// The same, and forgets it.
bool TakePromptInterrupt();

}  // namespace sluice::cli
