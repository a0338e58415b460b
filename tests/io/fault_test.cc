// What the devices of this world do to a read, through the double below the queue.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "io/testing/faulty_read.h"
#include "scratch.h"

namespace sluice {
namespace {

using testing::Buffer;
using testing::FaultPlan;
using testing::HoldsPattern;
using testing::ScratchFile;

constexpr uint64_t kBytes = 3 * kMiB;

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = std::move(File::Open(scratch_.path())).value(); }
  Status ReadAll(const FaultPlan& plan, bool direct = false) {
    auto queue = testing::MakeFaultyQueue({file_.get()}, plan, 3, direct);
    if (!queue.ok()) return queue.status();
    ReadRequest request;
    request.length = kBytes;
    request.buffer = buffer_.data();
    (*queue)->Submit(&request);
    return (*queue)->Wait(&request);
  }
  ScratchFile scratch_{kBytes};
  std::unique_ptr<File> file_;
  Buffer buffer_{kBytes};
};

TEST_F(FaultTest, SevenBytesAtATime) {
  FaultPlan plan;
  plan.short_bytes_max = 7;
  ASSERT_TRUE(ReadAll(plan).ok());
  EXPECT_TRUE(HoldsPattern(buffer_.data(), 0, kBytes));
}

TEST_F(FaultTest, InputErrorEndsInOneStatusThatNamesThePlace) {
  FaultPlan plan;
  plan.eio_at_byte = 2 * kMiB + 100;
  const Status status = ReadAll(plan);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(status.what(), "read failed: Input/output error");
  EXPECT_EQ(status.where(), scratch_.path() + ", offset 2097152, wanted 1048576 bytes, got 100");
}

TEST_F(FaultTest, InputErrorOnTheDirectDescriptorIsNotHiddenByTheOther) {
  if (file_->direct_fd() < 0) GTEST_SKIP() << "SKIP: no direct reads here";
  FaultPlan plan;
  plan.eio_at_byte = kMiB;
  EXPECT_EQ(ReadAll(plan, true).code(), Code::kIo);
}

TEST_F(FaultTest, TheNthReadFails) {
  FaultPlan plan;
  plan.short_bytes_max = 64 * kKiB;
  plan.eio_at_read = 20;
  EXPECT_EQ(ReadAll(plan).code(), Code::kIo);
}

TEST_F(FaultTest, AnEarlyEndIsAnError) {
  FaultPlan plan;
  plan.eof_at_byte = kMiB + 5;
  for (bool direct : {false, true}) {
    if (direct && file_->direct_fd() < 0) continue;
    const Status status = ReadAll(plan, direct);
    EXPECT_EQ(status.code(), Code::kIo);
    EXPECT_EQ(status.what(), "unexpected end of file");
  }
}

TEST_F(FaultTest, AFileThatShrinksForRealIsAnError) {
  ASSERT_EQ(truncate(scratch_.path().c_str(), kMiB + 5), 0);
  for (IoBackend backend : {IoBackend::kAuto, IoBackend::kPread, IoBackend::kBuffered}) {
    if (backend == IoBackend::kPread && file_->direct_fd() < 0) continue;
    ReadQueueOptions options;
    options.backend = backend;
    auto queue = MakeReadQueue({file_.get()}, options);
    ASSERT_TRUE(queue.ok());
    ReadRequest request;
    request.length = kBytes;
    request.buffer = buffer_.data();
    (*queue)->Submit(&request);
    const Status status = (*queue)->Wait(&request);
    EXPECT_EQ(status.what(), "unexpected end of file") << (*queue)->name();
    EXPECT_NE(status.where().find(scratch_.path()), std::string::npos);
  }
}

TEST_F(FaultTest, ADirectReadThatTurnsBadIsFinishedThroughThePageCacheWithANotice) {
  if (file_->direct_fd() < 0) GTEST_SKIP() << "SKIP: no direct reads here";
  std::string notices;
  SetLogSink([&](LogLevel, std::string_view message) { notices += message; });
  FaultPlan plan;
  plan.refused_fd = file_->direct_fd();
  const Status status = ReadAll(plan, true);
  SetLogSink(nullptr);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(HoldsPattern(buffer_.data(), 0, kBytes));
  EXPECT_NE(notices.find("was refused"), std::string::npos) << notices;
}

uint64_t PagesInCache(const File& file, uint64_t bytes) {
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  EXPECT_NE(map, MAP_FAILED);
  std::vector<unsigned char> resident(bytes / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(mincore(map, bytes, resident.data()), 0);
  munmap(map, bytes);
  return static_cast<uint64_t>(
      std::count_if(resident.begin(), resident.end(), [](int r) { return r & 1; }));
}

TEST_F(FaultTest, BufferedReadsLeaveNothingInThePageCache) {
  if (file_->direct_fd() < 0) GTEST_SKIP() << "SKIP: a file system in memory is its own page cache";
  ReadQueueOptions options;
  options.backend = IoBackend::kBuffered;
  auto queue = MakeReadQueue({file_.get()}, options);
  ASSERT_TRUE(queue.ok());
  // The journal may hold a page that writing the file left there; what reading adds must go.
  const uint64_t before = PagesInCache(*file_, kBytes);
  ReadRequest request;
  request.length = kBytes;
  request.buffer = buffer_.data();
  (*queue)->Submit(&request);
  ASSERT_TRUE((*queue)->Wait(&request).ok());
  EXPECT_LE(PagesInCache(*file_, kBytes), before + 16);
}

TEST_F(FaultTest, SlowReadsLetDemandPass) {
  FaultPlan plan;
  plan.sleep_us = 2000;
  auto queue = testing::MakeFaultyQueue({file_.get()}, plan, 1);
  ASSERT_TRUE(queue.ok());
  std::vector<ReadRequest> ahead(10);
  for (size_t i = 0; i < ahead.size(); ++i) {
    ahead[i].offset = i * 64 * kKiB;
    ahead[i].length = 64 * kKiB;
    ahead[i].buffer = buffer_.data() + i * 64 * kKiB;
    ahead[i].priority = ReadPriority::kAhead;
    (*queue)->Submit(&ahead[i]);
  }
  ReadRequest demand;
  demand.offset = 2 * kMiB;
  demand.length = 64 * kKiB;
  demand.buffer = buffer_.data() + 2 * kMiB;
  (*queue)->Submit(&demand);
  ASSERT_TRUE((*queue)->Wait(&demand).ok());
  for (ReadRequest& r : ahead) ASSERT_TRUE((*queue)->Wait(&r).ok());
  EXPECT_LT(demand.done_ns, ahead[4].done_ns);
  EXPECT_LT(demand.done_ns, ahead[9].done_ns);
}

}  // namespace
}  // namespace sluice
