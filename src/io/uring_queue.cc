#include "io/uring_queue.h"

#include <errno.h>
#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <system_error>

#include "base/log.h"
#include "io/piece_bytes.h"
#include "io/reading_thread.h"

namespace sluice {
namespace {

constexpr uint64_t kWakeUp = UINT64_MAX;    // user_data of the no-op that ends the pump's sleep
constexpr uint64_t kBufferBytesMax = kGiB;  // the kernel's limit for one registered buffer
constexpr size_t kBuffersMax = 1024;        // the limit of kernels before 5.13
constexpr int kRefusalsMax = 5000;          // times 1 ms

void Pause() {
  const timespec pause = {0, 1000000};
  nanosleep(&pause, nullptr);
}

int FileIndex(const std::vector<const File*>& files, const File* file) {
  return static_cast<int>(std::find(files.begin(), files.end(), file) - files.begin());
}

}  // namespace

UringQueue::UringQueue(const std::vector<const File*>& files, const ReadQueueOptions& options)
    : cpus_(options.cpus),
      board_(files, DirectAlignment(files), kPieceBytesMax),
      entries_(static_cast<size_t>(std::clamp(options.depth, 1, kUringDepthMax))) {
  for (uint32_t i = 0; i < entries_.size(); ++i) free_entries_.push_back(i);
}

Result<std::unique_ptr<ReadQueue>> UringQueue::Make(const std::vector<const File*>& files,
                                                    const ReadQueueOptions& options) {
  std::unique_ptr<UringQueue> queue(new UringQueue(files, options));
  SLUICE_TRY(queue->Init(options.registered));
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

Status UringQueue::Init(const std::vector<MutableByteSpan>& registered) {
  // One entry more than the depth: the no-op that wakes the pump at the end.
  const int error = io_uring_queue_init(static_cast<unsigned>(entries_.size()) + 1, &ring_, 0);
  if (error < 0) {
    return Status(Code::kIo, fmt::format("io_uring cannot be set up: {}", strerror(-error)), "io",
                  "use --io pread");
  }
  ring_ready_ = true;
  std::vector<int> descriptors;
  for (const File* file : board_.files()) descriptors.push_back(file->direct_fd());
  files_registered_ = io_uring_register_files(&ring_, descriptors.data(),
                                              static_cast<unsigned>(descriptors.size())) == 0;
  RegisterBuffers(registered);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  try {
    pump_thread_ = std::thread([this] { Pump(); });
  } catch (const std::system_error& failure) {
    refused = failure.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (refused.empty()) return Status();
  return Status(Code::kFailed, fmt::format("cannot start a reading thread: {}", refused), "io",
                "check the limit on threads (ulimit -u, pids.max)");
}

void UringQueue::RegisterBuffers(const std::vector<MutableByteSpan>& registered) {
  for (const MutableByteSpan& span : registered) {
    for (uint64_t at = 0; at < span.size(); at += kBufferBytesMax) {
      iovecs_.push_back({span.data() + at, std::min<size_t>(kBufferBytesMax, span.size() - at)});
    }
  }
  if (iovecs_.empty()) return;
  std::sort(iovecs_.begin(), iovecs_.end(),
            [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
  int error = -E2BIG;
  if (iovecs_.size() <= kBuffersMax) {
    error =
        io_uring_register_buffers(&ring_, iovecs_.data(), static_cast<unsigned>(iovecs_.size()));
  }
  if (error == 0) return;
  iovecs_.clear();
  // Usually the limit on locked memory; reads into plain buffers are a few per cent dearer, no
  // more.
  LogOnce(LogLevel::kInfo, "io.uring.buffers",
          fmt::format("io_uring: buffers are not registered ({})", strerror(-error)));
}

int UringQueue::BufferIndex(const Piece& piece) const {
  auto above = std::upper_bound(
      iovecs_.begin(), iovecs_.end(), piece.buffer,
      [](const uint8_t* p, const iovec& v) { return p < static_cast<uint8_t*>(v.iov_base); });
  if (above == iovecs_.begin()) return -1;
  const iovec& v = *(above - 1);
  const uint64_t start = static_cast<uint64_t>(piece.buffer - static_cast<uint8_t*>(v.iov_base));
  return start + piece.length <= v.iov_len ? static_cast<int>(above - 1 - iovecs_.begin()) : -1;
}

int UringQueue::Issue() {
  Piece piece;
  while (!free_entries_.empty() && board_.Next(&piece)) {
    const uint32_t entry = free_entries_.back();
    free_entries_.pop_back();
    entries_[entry] = piece;
    io_uring_sqe* sqe =
        io_uring_get_sqe(&ring_);  // never null: the ring has an entry for each of ours
    const int fd =
        files_registered_ ? FileIndex(board_.files(), piece.file) : piece.file->direct_fd();
    const int buffer = BufferIndex(piece);
    if (buffer >= 0) {
      io_uring_prep_read_fixed(sqe, fd, piece.buffer, static_cast<unsigned>(piece.length),
                               piece.offset, buffer);
    } else {
      io_uring_prep_read(sqe, fd, piece.buffer, static_cast<unsigned>(piece.length), piece.offset);
    }
    if (files_registered_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, entry);
  }
  while (io_uring_sq_ready(&ring_) > 0) {
    const int result = io_uring_submit(&ring_);
    if (result < 0 && result != -EINTR)
      return -result;  // what was refused stays in the ring for the next call
  }
  return 0;
}

void UringQueue::TakeCompletions() {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
    const uint64_t data = io_uring_cqe_get_data64(cqe);
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (data != kWakeUp) Complete(static_cast<uint32_t>(data), result);
  }
}

void UringQueue::Complete(uint32_t entry, int result) {
  const Piece& piece = entries_[entry];
  Status status;
  if (result < 0 && !DirectReadRefused(-result)) {
    status = ReadError(piece.file->path(), piece.offset, piece.valid, 0, -result);
  } else if (result < 0 || static_cast<uint64_t>(result) < piece.valid) {
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -ENOMEM)
      NoteRefusal(*piece.file, -result);
    // Refused or short: rare enough to be finished here, with the whole care of the other backends.
    status = FinishBuffered(read_, piece, static_cast<uint64_t>(std::max(result, 0)));
  }
  board_.Finish(piece, std::move(status));
  free_entries_.push_back(entry);
}

void UringQueue::Pump() {
  BeginReadingThread(cpus_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    if (owner_waits_ || !board_.queued() || board_.in_kernel() == 0) {
      pump_.wait(lock);
      continue;
    }
    lock.unlock();
    io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 1, IORING_ENTER_GETEVENTS, nullptr);
    lock.lock();
    if (owner_waits_ || stop_) continue;
    TakeCompletions();
    if (Issue() != 0) {
      lock.unlock();
      Pause();
      lock.lock();
    }
  }
}

void UringQueue::WakePump() {
  if (board_.queued()) pump_.notify_one();
}

void UringQueue::Submit(ReadRequest* request) {
  std::lock_guard<std::mutex> lock(mutex_);
  TakeCompletions();
  board_.Submit(request);
  Issue();  // a refusal is dealt with in Wait
  WakePump();
}

int UringQueue::Poll() {
  std::lock_guard<std::mutex> lock(mutex_);
  TakeCompletions();
  Issue();
  WakePump();
  return board_.Reap();
}

Status UringQueue::Wait(ReadRequest* request) {
  std::unique_lock<std::mutex> lock(mutex_);
  owner_waits_ = true;
  int refusals = 0;
  Status status;
  while (true) {
    TakeCompletions();
    const int error = Issue();
    board_.Reap();
    if (!board_.Knows(request)) {
      status = request->done ? request->status : NeverSubmitted();
      break;
    }
    if (error != 0 && ++refusals > kRefusalsMax) {
      status = Status(Code::kIo, fmt::format("io_uring refuses reads: {}", strerror(error)), "io",
                      "use --io pread");
      break;
    }
    lock.unlock();
    if (error != 0) {
      Pause();
    } else {
      io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 1, IORING_ENTER_GETEVENTS, nullptr);
    }
    lock.lock();
  }
  owner_waits_ = false;
  WakePump();
  return status;
}

bool UringQueue::Cancel(ReadRequest* request) {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.Cancel(request);
}

int UringQueue::outstanding() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.outstanding();
}

uint64_t UringQueue::bytes_read() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return board_.bytes_read();
}

UringQueue::~UringQueue() {
  if (!ring_ready_) return;
  std::unique_lock<std::mutex> lock(mutex_);
  stop_ = true;
  // The kernel writes into the callers' buffers until its last completion.
  for (int refusals = 0; board_.in_kernel() > 0 && refusals < kRefusalsMax;) {
    io_uring_submit(&ring_);
    if (io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 1, IORING_ENTER_GETEVENTS,
                       nullptr) < 0) {
      ++refusals;
      Pause();
    }
    TakeCompletions();
  }
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe != nullptr) {
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, kWakeUp);
    io_uring_submit(&ring_);
  }
  lock.unlock();
  pump_.notify_one();
  if (pump_thread_.joinable()) pump_thread_.join();
  io_uring_queue_exit(&ring_);
}

}  // namespace sluice
