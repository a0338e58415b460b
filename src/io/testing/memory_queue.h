// Test doubles of the whole queue: files that are bytes in memory, and completions in a chosen
// disorder.
//
// Contract: as read_queue.h; no thread, no system call, deterministic. MemoryQueue completes
// requests in Poll and Wait, demand first, at most `depth` per Poll. SlowQueue holds up to `depth`
// requests of another queue back and lets them go in an order drawn from `seed`, each after
// `delay_ns` since its submission; Poll lets go of at most one, so that a caller meets every state
// in between.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "io/read_queue.h"

namespace sluice::testing {

class MemoryQueue : public ReadQueue {
 public:
  // The bytes must outlive the queue. fail, when given, may answer a request with an error instead.
  MemoryQueue(std::vector<ByteSpan> files, int depth, uint32_t alignment = 512,
              std::function<Status(const ReadRequest&)> fail = nullptr);

  const char* name() const override { return "memory"; }
  uint32_t alignment() const override { return alignment_; }
  int depth() const override { return depth_; }
  void Submit(ReadRequest* request) override;
  int Poll() override;
  Status Wait(ReadRequest* request) override;
  bool Cancel(ReadRequest* request) override;
  int outstanding() const override { return static_cast<int>(waiting_.size()); }
  uint64_t bytes_read() const override { return bytes_read_; }

 private:
  bool CompleteNext();

  const std::vector<ByteSpan> files_;
  const int depth_;
  const uint32_t alignment_;
  const std::function<Status(const ReadRequest&)> fail_;
  std::vector<ReadRequest*> waiting_;
  uint64_t bytes_read_ = 0;
};

class SlowQueue : public ReadQueue {
 public:
  SlowQueue(std::unique_ptr<ReadQueue> inner, uint64_t seed, uint64_t delay_ns, int depth);

  const char* name() const override { return "slow"; }
  uint32_t alignment() const override { return inner_->alignment(); }
  int depth() const override { return depth_; }
  void Submit(ReadRequest* request) override;
  int Poll() override;
  Status Wait(ReadRequest* request) override;
  bool Cancel(ReadRequest* request) override;
  int outstanding() const override { return static_cast<int>(held_.size() + queued_.size()); }
  uint64_t bytes_read() const override { return inner_->bytes_read(); }

 private:
  void Fill();
  ReadRequest* ReleaseOne();

  const std::unique_ptr<ReadQueue> inner_;
  const uint64_t delay_ns_;
  const int depth_;
  uint64_t state_;
  std::vector<ReadRequest*> queued_, held_;
};

}  // namespace sluice::testing
