// ReadQueue on threads that call pread: the backend that works everywhere.
//
// Contract: as read_queue.h. One thread ("lane") per unit of depth; a lane blocks in one read at a
// time. The mutex guards the board only and is never held during a read. Lanes block all signals.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/raw_read.h"
#include "io/read_queue.h"
#include "io/request_board.h"

namespace sluice {

struct PoolQueueOptions {
  const char* name = "pread";
  bool direct = true;  // false: through the page cache, which is emptied behind each piece
  int lanes = 4;
  RawRead read = SystemRead();
  std::vector<int> cpus;  // as in ReadQueueOptions
};

class PoolQueue : public ReadQueue {
 public:
  static Result<std::unique_ptr<ReadQueue>> Make(const std::vector<const File*>& files,
                                                 PoolQueueOptions options);
  ~PoolQueue() override;

  const char* name() const override { return options_.name; }
  uint32_t alignment() const override { return board_.alignment(); }
  int depth() const override { return static_cast<int>(lanes_.size()); }
  void Submit(ReadRequest* request) override;
  int Poll() override;
  Status Wait(ReadRequest* request) override;
  bool Cancel(ReadRequest* request) override;
  int outstanding() const override;
  uint64_t bytes_read() const override;

 private:
  PoolQueue(const std::vector<const File*>& files, PoolQueueOptions options);
  void Lane();

  const PoolQueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  RequestBoard board_;
  bool stop_ = false;
  std::vector<std::thread> lanes_;
};

}  // namespace sluice
