// Test double below the queue: a pread that misbehaves on purpose.
//
// Contract: thread-safe; counts its calls. Used as PoolQueueOptions::read, so that the real retry
// code is what gets tested. Faults by field; all off by default.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "io/pool_queue.h"
#include "io/raw_read.h"

namespace sluice::testing {

struct FaultPlan {
  uint64_t short_bytes_max = 0;     // every read returns at most this many bytes; 0: off
  bool eintr_every_second = false;  // every second call fails with EINTR first
  bool eagain_every_third = false;  // every third call fails with EAGAIN first
  int64_t eio_at_read = -1;         // the n-th call (from 0) and all later ones fail with EIO
  int64_t eio_at_byte = -1;         // reads that reach this offset fail with EIO there
  int64_t eof_at_byte = -1;         // the file ends here, whatever its size said
  int refused_fd = -1;              // reads of this descriptor fail with EINVAL (a direct one, say)
  uint64_t sleep_us = 0;            // before each read
};

// `calls` may be null.
RawRead MakeFaultyRead(const FaultPlan& plan,
                       std::shared_ptr<std::atomic<int64_t>> calls = nullptr);

// A pool over that read; buffered unless `direct`. Its name is "faulty".
Result<std::unique_ptr<ReadQueue>> MakeFaultyQueue(const std::vector<const File*>& files,
                                                   const FaultPlan& plan, int lanes = 2,
                                                   bool direct = false);

}  // namespace sluice::testing
