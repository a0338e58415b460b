#include "memory/background_prefault.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace sluice {

BackgroundPrefault::BackgroundPrefault(Arena* arena) : arena_(arena) {
  if (arena->size() == 0) return;
  sigset_t all, before;  // signals belong to the owner's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { Work(); });
  } catch (const std::system_error&) {
    // Join does it.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BackgroundPrefault::Work() {
  status_ = arena_->Populate();
  done_ = true;
}

Status BackgroundPrefault::Join() {
  if (thread_.joinable()) thread_.join();
  if (!done_) Work();
  return status_;
}

BackgroundPrefault::~BackgroundPrefault() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace sluice
