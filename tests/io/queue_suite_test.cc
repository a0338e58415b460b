// The one suite that every backend and every double passes.
#include <gtest/gtest.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/clock.h"
#include "base/limits.h"
#include "io/pool_queue.h"
#include "io/testing/faulty_read.h"
#include "io/testing/memory_queue.h"
#include "io/uring_probe.h"
#include "scratch.h"

namespace sluice {
namespace {

using testing::Buffer;
using testing::FaultPlan;
using testing::HoldsPattern;
using testing::ScratchFile;

constexpr uint64_t kFileBytes = 3 * kMiB + 12345;  // the last block is a partial one

struct Backend {
  const char* name;
  // Empty result: not available here, and why.
  std::function<Result<std::unique_ptr<ReadQueue>>(const std::vector<const File*>&, ByteSpan bytes,
                                                   MutableByteSpan)>
      make;
};

Result<std::unique_ptr<ReadQueue>> MakeFixed(IoBackend backend, int depth,
                                             const std::vector<const File*>& files,
                                             std::vector<MutableByteSpan> registered = {}) {
  ReadQueueOptions options;
  options.backend = backend;
  options.depth = depth;
  options.registered = std::move(registered);
  return MakeReadQueue(files, options);
}

std::unique_ptr<ReadQueue> Memory(ByteSpan bytes) {
  return std::make_unique<testing::MemoryQueue>(std::vector<ByteSpan>{bytes, bytes}, 2);
}

const Backend kBackends[] = {
    {"Uring", [](auto& files, auto, auto) { return MakeFixed(IoBackend::kUring, 8, files); }},
    {"UringRegistered",
     [](auto& files, auto, MutableByteSpan buffer) {
       return MakeFixed(IoBackend::kUring, 8, files, {buffer});
     }},
    {"UringDepthOne",
     [](auto& files, auto, auto) { return MakeFixed(IoBackend::kUring, 1, files); }},
    {"Pread", [](auto& files, auto, auto) { return MakeFixed(IoBackend::kPread, 4, files); }},
    {"PreadDepthOne",
     [](auto& files, auto, auto) { return MakeFixed(IoBackend::kPread, 1, files); }},
    {"Buffered", [](auto& files, auto, auto) { return MakeFixed(IoBackend::kBuffered, 4, files); }},
    {"Auto", [](auto& files, auto, auto) { return MakeFixed(IoBackend::kAuto, 4, files); }},
    {"FaultyShort",
     [](auto& files, auto, auto) {
       FaultPlan plan;
       plan.short_bytes_max = 4099;
       return testing::MakeFaultyQueue(files, plan);
     }},
    {"FaultyInterrupted",
     [](auto& files, auto, auto) {
       FaultPlan plan;
       plan.eintr_every_second = true;
       plan.eagain_every_third = true;
       plan.short_bytes_max = 100000;
       return testing::MakeFaultyQueue(files, plan, 3);
     }},
    {"FaultyDirectRefused",
     [](auto& files, auto, auto) {
       FaultPlan plan;
       plan.refused_fd = files[0]->direct_fd();
       return testing::MakeFaultyQueue(files, plan, 3, files[0]->direct_fd() >= 0);
     }},
    {"FaultyDirectShort",
     [](auto& files, auto, auto) {
       FaultPlan plan;
       plan.short_bytes_max = 3 * 512 * 7;
       return testing::MakeFaultyQueue(files, plan, 3, files[0]->direct_fd() >= 0);
     }},
    {"Memory",
     [](auto&, ByteSpan bytes, auto) { return Result<std::unique_ptr<ReadQueue>>(Memory(bytes)); }},
    {"Slow",
     [](auto&, ByteSpan bytes, auto) {
       return Result<std::unique_ptr<ReadQueue>>(
           std::make_unique<testing::SlowQueue>(Memory(bytes), 7, 20000, 5));
     }},
};

class QueueSuite : public ::testing::TestWithParam<Backend> {
 protected:
  static void SetUpTestSuite() { scratch_ = new ScratchFile(kFileBytes); }
  static void TearDownTestSuite() { delete scratch_; }
  void SetUp() override {
    auto file = File::Open(scratch_->path());
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = std::move(file).value();
    auto again = File::Open(scratch_->path());
    ASSERT_TRUE(again.ok());
    second_ = std::move(again).value();
    const std::string name = GetParam().name;
    if (name.starts_with("Uring") && !ProbeUring().available) {
      GTEST_SKIP() << "SKIP: io_uring is not available here: " << ProbeUring().reason;
    }
    if ((name.starts_with("Uring") || name.starts_with("Pread")) && file_->direct_fd() < 0) {
      GTEST_SKIP() << "SKIP: direct reads are refused in the folder of the test files";
    }
    Make();
  }
  void Make() {
    auto queue =
        GetParam().make({file_.get(), second_.get()}, testing::Pattern(kFileBytes), buffer_.span());
    ASSERT_TRUE(queue.ok()) << queue.status().ToString();
    queue_ = std::move(queue).value();
  }
  uint64_t Align(uint64_t n) const { return AlignUp(n, queue_->alignment()); }

  static inline ScratchFile* scratch_ = nullptr;
  std::unique_ptr<File> file_, second_;
  Buffer buffer_{8 * kMiB};
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(QueueSuite, WholeFileInOneRequestReachingPastItsEnd) {
  ReadRequest request;
  request.length = Align(kFileBytes);
  request.buffer = buffer_.data();
  queue_->Submit(&request);
  EXPECT_EQ(queue_->outstanding(), 1);
  const Status status = queue_->Wait(&request);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(request.done);
  EXPECT_GE(request.done_ns, request.submit_ns);
  EXPECT_TRUE(HoldsPattern(buffer_.data(), 0, kFileBytes));
  EXPECT_EQ(queue_->outstanding(), 0);
  EXPECT_EQ(queue_->bytes_read(), request.length);
  EXPECT_EQ(queue_->Poll(), 0);
}

TEST_P(QueueSuite, ManyAtOnceInAnyOrder) {
  std::mt19937 random(5);
  constexpr uint64_t kSlotBytes = 16 * kKiB;
  std::vector<ReadRequest> requests(limits::kReadsInFlightMax);
  for (size_t i = 0; i < requests.size(); ++i) {
    ReadRequest& r = requests[i];
    r.file = i % 2;
    r.offset = AlignDown(random() % kFileBytes, 4096);
    r.length = std::min<uint64_t>(Align(1 + random() % kSlotBytes), Align(kFileBytes - r.offset));
    r.buffer = buffer_.data() + i * kSlotBytes;
    r.priority = random() % 3 == 0 ? ReadPriority::kAhead : ReadPriority::kDemand;
    queue_->Submit(&r);
  }
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i : order) {
    ASSERT_TRUE(queue_->Wait(&requests[i]).ok()) << requests[i].status.ToString();
    const ReadRequest& r = requests[i];
    ASSERT_TRUE(HoldsPattern(r.buffer, r.offset, std::min(r.length, kFileBytes - r.offset)));
  }
  EXPECT_EQ(queue_->outstanding(), 0);
}

TEST_P(QueueSuite, PollReachesTheEndWithoutWait) {
  std::vector<ReadRequest> requests(20);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].offset = i * 64 * kKiB;
    requests[i].length = 64 * kKiB;
    requests[i].buffer = buffer_.data() + i * 64 * kKiB;
    queue_->Submit(&requests[i]);
  }
  int reaped = 0;
  const double start = NowSeconds();
  while (reaped < 20 && NowSeconds() - start < 10) reaped += queue_->Poll();
  EXPECT_EQ(reaped, 20);
  EXPECT_TRUE(HoldsPattern(buffer_.data(), 0, 20 * 64 * kKiB));
}

TEST_P(QueueSuite, ReadingGoesOnWhileTheOwnerComputes) {
  const std::string name = GetParam().name;
  if (name == "Memory" || name == "Slow")
    GTEST_SKIP() << "SKIP: this double works in Poll and Wait only";
  ReadRequest request;
  request.length = 3 * kMiB;
  request.buffer = buffer_.data();
  // The owner calls nothing meanwhile, so one look at the end must find the request finished. A
  // longer second try forgives a busy machine, not a queue that stands still.
  int reaped = 0;
  for (long milliseconds : {60, 3000}) {
    queue_->Submit(&request);
    const timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, nullptr);
    EXPECT_FALSE(request.done) << "results are published in Poll and Wait only";
    reaped = queue_->Poll();
    EXPECT_TRUE(queue_->Wait(&request).ok());
    if (reaped == 1) break;
  }
  EXPECT_EQ(reaped, 1);
  EXPECT_TRUE(HoldsPattern(buffer_.data(), 0, request.length));
}

TEST_P(QueueSuite, OutsideTheFileIsAnErrorThatNamesThePlace) {
  ReadRequest request;
  request.offset = 16 * kMiB;
  request.length = 4096;
  request.buffer = buffer_.data();
  queue_->Submit(&request);
  const Status status = queue_->Wait(&request);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_TRUE(request.done);
  EXPECT_NE(status.ToString().find("offset 16777216"), std::string::npos) << status.ToString();
  EXPECT_NE(status.ToString().find("wanted 4096"), std::string::npos) << status.ToString();
}

TEST_P(QueueSuite, MisalignedRequestsAreRefused) {
  if (queue_->alignment() == 1) GTEST_SKIP() << "SKIP: this backend takes any address";
  ReadRequest request;
  request.offset = 3;
  request.length = 4096;
  request.buffer = buffer_.data();
  queue_->Submit(&request);
  EXPECT_EQ(queue_->Wait(&request).code(), Code::kFailed);
}

TEST_P(QueueSuite, WaitingForAStrangerDoesNotHang) {
  ReadRequest stranger;
  EXPECT_FALSE(queue_->Wait(&stranger).ok());
  EXPECT_FALSE(queue_->Cancel(&stranger));
}

TEST_P(QueueSuite, CancelledRequestsAreNotReadAndTheRestIs) {
  std::vector<ReadRequest> requests(48);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].offset = i * 64 * kKiB;
    requests[i].length = 64 * kKiB;
    requests[i].buffer = buffer_.data() + i * 64 * kKiB;
    requests[i].priority = ReadPriority::kAhead;
    queue_->Submit(&requests[i]);
  }
  std::vector<bool> cancelled(requests.size());
  for (size_t i = requests.size(); i-- > 0;) cancelled[i] = queue_->Cancel(&requests[i]);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (cancelled[i]) {
      EXPECT_FALSE(requests[i].done);
      EXPECT_EQ(buffer_.data()[i * 64 * kKiB], 0xEE);
    } else {
      ASSERT_TRUE(queue_->Wait(&requests[i]).ok());
      ASSERT_TRUE(HoldsPattern(requests[i].buffer, requests[i].offset, requests[i].length));
    }
  }
  EXPECT_EQ(queue_->outstanding(), 0);
}

TEST_P(QueueSuite, DestructionWaitsForTheKernel) {
  for (int round = 0; round < 4; ++round) {
    auto requests = std::make_unique<std::vector<ReadRequest>>(20);
    for (size_t i = 0; i < requests->size(); ++i) {
      (*requests)[i].offset = i * 128 * kKiB;
      (*requests)[i].length = 128 * kKiB;
      (*requests)[i].buffer = buffer_.data() + i * 128 * kKiB;
      queue_->Submit(&(*requests)[i]);
    }
    if (round % 2) queue_->Poll();
    queue_.reset();
    requests.reset();
    memset(buffer_.data(), 0, 20 * 128 * kKiB);
    for (uint64_t i = 0; i < 20 * 128 * kKiB; i += 512)
      ASSERT_EQ(buffer_.data()[i], 0) << "written after the end";
    Make();
  }
}

TEST_P(QueueSuite, OneMoreThanTheLimitIsRefused) {
  std::vector<ReadRequest> requests(limits::kReadsInFlightMax + 1);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].length = 4096;
    requests[i].buffer = buffer_.data() + i * 4096;
  }
  for (ReadRequest& r : requests) queue_->Submit(&r);
  EXPECT_TRUE(requests.back().done);
  EXPECT_EQ(requests.back().status.code(), Code::kFailed);
  for (size_t i = 0; i + 1 < requests.size(); ++i) EXPECT_TRUE(queue_->Wait(&requests[i]).ok());
}

INSTANTIATE_TEST_SUITE_P(All, QueueSuite, ::testing::ValuesIn(kBackends),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace sluice
