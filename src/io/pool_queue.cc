#include "io/pool_queue.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "io/piece_bytes.h"
#include "io/reading_thread.h"

namespace sluice {

PoolQueue::PoolQueue(const std::vector<const File*>& files, PoolQueueOptions options)
    : options_(std::move(options)),
      board_(files, options_.direct ? DirectAlignment(files) : 1, kPieceBytesMax) {}

Result<std::unique_ptr<ReadQueue>> PoolQueue::Make(const std::vector<const File*>& files,
                                                   PoolQueueOptions options) {
  const int lanes = std::clamp(options.lanes, 1, kLanesMax);
  // Pieces are read-ahead enough. The kernel's own would put pages there that no piece drops again,
  // and folios that lie across two pieces, which dropping one of them cannot free.
  for (const File* file : files) {
    if (!options.direct) posix_fadvise(file->fd(), 0, 0, POSIX_FADV_RANDOM);
  }
  std::unique_ptr<PoolQueue> queue(new PoolQueue(files, std::move(options)));
  queue->lanes_.reserve(static_cast<size_t>(lanes));
  // Signals belong to the threads of the program; a lane inherits the mask of its maker.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  try {
    for (int i = 0; i < lanes; ++i) queue->lanes_.emplace_back([q = queue.get()] { q->Lane(); });
  } catch (const std::system_error& error) {
    refused = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (queue->lanes_.empty()) {
    return Status(Code::kFailed, fmt::format("cannot start a reading thread: {}", refused), "io",
                  "check the limit on threads (ulimit -u, pids.max)");
  }
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

PoolQueue::~PoolQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& lane : lanes_) lane.join();
}

void PoolQueue::Lane() {
  BeginReadingThread(options_.cpus);
  std::unique_lock<std::mutex> lock(mutex_);
  Piece piece;
  while (true) {
    while (!stop_ && !board_.Next(&piece)) work_.wait(lock);
    if (stop_) return;
    // Each lane that takes a piece wakes the next one, so that Submit pays for one wake-up only.
    if (board_.queued()) work_.notify_one();
    lock.unlock();
    Status status = ReadPiece(options_.read, piece, options_.direct);
    lock.lock();
    if (board_.Finish(piece, std::move(status))) done_.notify_all();
  }
}

void PoolQueue::Submit(ReadRequest* request) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    board_.Submit(request);
  }
  work_.notify_one();
}

int PoolQueue::Poll() {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.Reap();
}

Status PoolQueue::Wait(ReadRequest* request) {
  std::unique_lock<std::mutex> lock(mutex_);
  board_.Reap();
  while (board_.Knows(request)) {
    done_.wait(lock, [this] { return board_.finished(); });
    board_.Reap();
  }
  return request->done ? request->status : NeverSubmitted();
}

bool PoolQueue::Cancel(ReadRequest* request) {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.Cancel(request);
}

int PoolQueue::outstanding() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.outstanding();
}

uint64_t PoolQueue::bytes_read() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.bytes_read();
}

}  // namespace sluice
