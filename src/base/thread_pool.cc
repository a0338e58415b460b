#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <new>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/log.h"

namespace sluice {
namespace {

// Between two jobs of one layer the owner computes for a few microseconds; a futex round trip costs
// about as much. Spinning longer only takes the processor away from others (FIELD section 6c:
// spinning).
constexpr uint64_t kSpinNanos = 5000;
constexpr int kSpinIterations = 2000;  // the bound where the clock is slow
constexpr int kPausesPerCheck = 4;
constexpr size_t kStackBytes = 1 << 20;  // the default of 8 MiB would be pinned whole by --mlock
constexpr size_t kCacheLine = 128;       // pairs of lines are fetched together
// FollowCpus looks at the owner alone, and at the workers this often: what narrows a process
// usually moves all its threads.
constexpr uint32_t kLooksPerFullLook = 16;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");  // yield is a no-op on most cores
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

// Returns when woken, when *word != seen, or for no reason: callers loop.
void FutexWait(std::atomic<uint32_t>* word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}

void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr,
          0);
}

// True as soon as done() holds; false when the spin is over.
template <typename Done>
bool SpinUntil(bool may_spin, Done done) {
  if (done()) return true;
  if (!may_spin) return false;
  const uint64_t deadline = NowNanos() + kSpinNanos;
  for (int i = 0; i < kSpinIterations; ++i) {
    for (int pause = 0; pause < kPausesPerCheck; ++pause) Pause();
    if (done()) return true;
    if (NowNanos() >= deadline) return false;
  }
  return false;
}

using PartFn = FunctionRef<void(int)>;

}  // namespace

// How a job is handed out. `ticket` holds (generation, parts left); a part is claimed by exchanging
// it for one less. A successful exchange proves the job is still the current one, and the job
// cannot end before that part is reported in `unfinished`, so only a claimer may read `parts` and
// `fn`. A thread that wakes late finds nothing left and touches nothing: Run waits for parts, not
// for threads.
struct ThreadPool::Impl {
  int threads = 1;
  std::atomic<bool> may_spin{true};
  std::vector<int> cpus;
  Placement placement = Placement::kOneEach;
  struct Seat {
    Impl* pool = nullptr;
    int index = 0;  // the owner is 0
  };
  std::vector<Seat> seats;
  std::vector<pthread_t> workers;
  bool owner_placed = false;
  pthread_t owner{};
  cpu_set_t owner_mask{}, owner_place{};  // before and after it was placed

  cpu_set_t seen_mask{};  // the owner's, when the processors were last counted
  uint32_t looks = 0;

  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};
  int parts = 0;
  const PartFn* fn = nullptr;
  alignas(kCacheLine) std::atomic<uint32_t> generation{0};  // futex of idle workers
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  std::atomic<int> active{1};
  std::atomic<uint32_t> roll{0};                            // futex of the workers beyond `active`
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};  // futex of the owner
  std::atomic<bool> owner_sleeps{false};

  static uint32_t Left(uint64_t t) { return static_cast<uint32_t>(t); }

  // Claims and runs parts until none is left.
  void Work() {
    uint32_t finished = 0;
    uint64_t t = ticket.load(std::memory_order_acquire);
    while (Left(t) != 0) {
      if (!ticket.compare_exchange_weak(t, t - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      (*fn)(parts - static_cast<int>(Left(t)));
      ++finished;
      t = ticket.load(std::memory_order_acquire);
    }
    if (finished == 0) return;
    // seq_cst pairs with WaitForParts: either the owner sees zero or we see that it sleeps.
    if (unfinished.fetch_sub(finished) == finished && owner_sleeps.load())
      FutexWake(&unfinished, 1);
  }

  // A worker beyond `active` rests here, out of reach of what wakes the others.
  void Rest(int index) {
    const auto rests = [&] { return index >= active.load() && !stop.load(); };
    while (rests()) {
      const uint32_t seen = roll.load();
      if (rests()) FutexWait(&roll, seen);
    }
  }

  void CallRoll() {
    roll.fetch_add(1);
    FutexWake(&roll, INT_MAX);
  }

  void SetActive(int count) {
    const int before = active.exchange(count);
    if (count == before) return;
    CallRoll();
    if (count < before) Publish(INT_MAX);  // nothing to do: those who must rest go there
  }

  // The processors that the owner or any worker may run on; 0 when the kernel does not say.
  int CountCpus() {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) return 0;  // more than 1024 processors
    seen_mask = all;
    for (const pthread_t worker : workers) {
      if (pthread_getaffinity_np(worker, sizeof(one), &one) == 0) CPU_OR(&all, &all, &one);
    }
    return CPU_COUNT(&all);
  }

  void WorkerLoop(int index) {
    uint32_t seen = 0;
    while (true) {
      Rest(index);
      const auto news = [&] { return generation.load(std::memory_order_acquire) != seen; };
      if (!SpinUntil(may_spin.load(std::memory_order_relaxed), news)) {
        sleepers.fetch_add(1);  // before the kernel's comparison, see Publish
        while (!news()) FutexWait(&generation, seen);
        sleepers.fetch_sub(1);
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      if (index < active.load(std::memory_order_relaxed)) Work();
    }
  }

  // seq_cst on both words: a worker is either counted as a sleeper here or sees the new generation
  // there.
  void Publish(uint32_t wanted) {
    generation.fetch_add(1);
    const uint32_t asleep = sleepers.load();
    if (asleep > 0) FutexWake(&generation, static_cast<int>(std::min<uint32_t>(wanted, INT_MAX)));
  }

  void WaitForParts() {
    const auto done = [&] { return unfinished.load(std::memory_order_acquire) == 0; };
    if (SpinUntil(may_spin.load(std::memory_order_relaxed), done)) return;
    owner_sleeps.store(true);
    for (uint32_t left = unfinished.load(); left != 0; left = unfinished.load())
      FutexWait(&unfinished, left);
    owner_sleeps.store(false);
  }

  void PlaceOwner() {
    owner_placed = true;
    owner = pthread_self();
    pthread_getaffinity_np(owner, sizeof(owner_mask), &owner_mask);
    Place(owner, 0);
    pthread_getaffinity_np(owner, sizeof(owner_place), &owner_place);
  }

  void RestoreOwner() {
    if (!owner_placed || !pthread_equal(owner, pthread_self())) return;
    cpu_set_t now;
    if (pthread_getaffinity_np(owner, sizeof(now), &now) != 0 || !CPU_EQUAL(&now, &owner_place))
      return;
    pthread_setaffinity_np(owner, sizeof(owner_mask), &owner_mask);
  }

  void Place(pthread_t thread, size_t index) {
    if (placement == Placement::kShared) {
      if (RestrictThread(thread, cpus)) return;
      LogOnce(LogLevel::kInfo, "place", "cannot keep the threads on the fast processors");
      return;
    }
    const int cpu = cpus[index % cpus.size()];
    if (RestrictThread(thread, {cpu})) return;
    LogOnce(LogLevel::kWarning, "pin" + std::to_string(cpu),
            "cannot pin a thread to processor " + std::to_string(cpu) +
                "; it runs where the system puts it");
  }

  void Start() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::max<size_t>(kStackBytes, PTHREAD_STACK_MIN));
    // Workers take no signals: Ctrl-C belongs to the program's main thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto entry = [](void* seat) -> void* {
      static_cast<Seat*>(seat)->pool->WorkerLoop(static_cast<Seat*>(seat)->index);
      return nullptr;
    };
    seats.resize(static_cast<size_t>(threads));
    for (int i = 1; i < threads; ++i) {
      pthread_t thread;
      Seat& seat = seats[static_cast<size_t>(i)];
      seat = {this, i};
      if (pthread_create(&thread, &attributes, entry, &seat) != 0) {
        // Fewer threads give the same result, only later.
        Log(LogLevel::kWarning, "only " + std::to_string(i) + " of " + std::to_string(threads) +
                                    " compute threads could be started");
        threads = i;
        break;
      }
      workers.push_back(thread);
      if (!cpus.empty()) Place(thread, static_cast<size_t>(i));
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
  }
};

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus, Placement placement)
    : impl_(std::make_unique<Impl>()) {
  Impl& pool = *impl_;
  pool.threads = std::clamp(threads, 1, static_cast<int>(limits::kThreadsMax));
  pool.cpus = cpus;
  pool.placement = placement;
  const size_t available = cpus.empty() ? AllowedCpus().size() : cpus.size();
  pool.may_spin = static_cast<size_t>(pool.threads) <= available;
  pool.active = pool.threads;
  pool.workers.reserve(static_cast<size_t>(pool.threads));
  pool.Start();
  pool.active = pool.threads;
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true);
  impl_->CallRoll();
  impl_->Publish(INT_MAX);
  for (pthread_t thread : impl_->workers) pthread_join(thread, nullptr);
  impl_->RestoreOwner();
}

int ThreadPool::threads() const { return impl_->threads; }
int ThreadPool::active_threads() const { return impl_->active.load(std::memory_order_relaxed); }

void ThreadPool::FollowCpus() {
  Impl& pool = *impl_;
  if (pool.workers.empty()) return;
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return;
  if (pool.looks++ % kLooksPerFullLook != 0 && CPU_EQUAL(&own, &pool.seen_mask)) return;
  const int cpus = pool.CountCpus();
  if (cpus == 0) return;
  pool.may_spin = true;  // from now on no more threads than processors
  pool.SetActive(std::min(pool.threads, cpus));
}

void ThreadPool::Run(int parts, FunctionRef<void(int part)> fn) {
  if (parts <= 0) return;
  Impl& pool = *impl_;
  if (!pool.cpus.empty() && !pool.owner_placed) pool.PlaceOwner();
  const int active = pool.active.load(std::memory_order_relaxed);
  if (active == 1 || parts == 1) {
    for (int part = 0; part < parts; ++part) fn(part);
    return;
  }
  pool.parts = parts;
  pool.fn = &fn;
  const auto count = static_cast<uint32_t>(parts);
  pool.unfinished.store(count, std::memory_order_relaxed);
  const uint64_t next = (pool.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  pool.ticket.store(next << 32 | count, std::memory_order_release);
  pool.Publish(std::min(count, static_cast<uint32_t>(active)) - 1);
  pool.Work();
  pool.WaitForParts();
}

}  // namespace sluice
