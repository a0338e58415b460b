#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/read_queue.h"
#include "io/uring_probe.h"
#include "scratch.h"

namespace sluice {
namespace {

using testing::Buffer;
using testing::HoldsPattern;
using testing::ScratchFile;

int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(FileTest, ReadsWhatIsThere) {
  ScratchFile scratch(100000);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->size(), 100000u);
  Buffer buffer(100000);
  ASSERT_TRUE((*file)->ReadExact(777, {buffer.data(), 99223}).ok());
  EXPECT_TRUE(HoldsPattern(buffer.data(), 777, 99223));
  EXPECT_TRUE((*file)->ReadExact(5, {}).ok());
}

TEST(FileTest, TheEndOfTheFileIsAnErrorWithNumbers) {
  ScratchFile scratch(1000);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  Buffer buffer(512);
  const Status status = (*file)->ReadExact(900, {buffer.data(), 512});
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(status.what(), "unexpected end of file");
  EXPECT_EQ(status.where(), scratch.path() + ", offset 900, wanted 512 bytes, got 100");
}

TEST(FileTest, WhatIsNoFileIsRefusedByName) {
  EXPECT_EQ(File::Open("/nonexistent/model.gguf").status().code(), Code::kIo);
  EXPECT_EQ(File::Open("/tmp").status().what(), "is a folder, not a file");
  EXPECT_EQ(File::Open("/dev/null").status().what(), "not a regular file");
  const std::string fifo = "/tmp/sluice_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(File::Open(fifo).status().what(), "not a regular file");  // and does not hang
  unlink(fifo.c_str());
}

TEST(FileTest, AnEmptyFileOpens) {
  ScratchFile scratch(0);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size(), 0u);
  EXPECT_TRUE(MakeReadQueue({file->get()}, {}).ok());
}

TEST(FileTest, SmallFilesCanBeReadDirectlyToo) {
  ScratchFile big(kMiB);
  if (std::move(File::Open(big.path())).value()->direct_fd() < 0)
    GTEST_SKIP() << "SKIP: no direct reads here";
  for (uint64_t bytes : {1, 511, 512, 513, 4095, 4097}) {
    ScratchFile scratch(bytes);
    auto file = File::Open(scratch.path());
    ASSERT_TRUE(file.ok());
    EXPECT_GE((*file)->direct_fd(), 0) << bytes;
  }
}

TEST(FileTest, NoDescriptorLeaks) {
  ScratchFile scratch(kMiB);
  ProbeUring();
  const int before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) {
    auto file = File::Open(scratch.path());
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(MakeReadQueue({file->get()}, {}).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(FileTest, OnTmpfsTheQueueReadsThroughThePageCacheAndSaysSo) {
  const int fd = open("/dev/shm/sluice_tmpfs_test", O_CREAT | O_RDWR | O_TRUNC, 0600);
  if (fd < 0) GTEST_SKIP() << "SKIP: no /dev/shm";
  ASSERT_EQ(ftruncate(fd, 100000), 0);
  close(fd);
  auto file = File::Open("/dev/shm/sluice_tmpfs_test");
  unlink("/dev/shm/sluice_tmpfs_test");
  ASSERT_TRUE(file.ok());
  if ((*file)->direct_fd() >= 0) GTEST_SKIP() << "SKIP: this kernel's tmpfs takes O_DIRECT";
  std::string notices;
  SetLogSink([&](LogLevel, std::string_view message) { notices += message; });
  auto queue = MakeReadQueue({file->get()}, {});
  SetLogSink(nullptr);
  ASSERT_TRUE(queue.ok());
  EXPECT_STREQ((*queue)->name(), "buffered");
  EXPECT_NE(notices.find("page cache"), std::string::npos) << notices;
  ReadQueueOptions forced;
  forced.backend = IoBackend::kPread;
  const Status refused = MakeReadQueue({file->get()}, forced).status();
  EXPECT_EQ(refused.code(), Code::kIo);
  EXPECT_NE(refused.hint().find("--io buffered"), std::string::npos);
}

// One tensor above 2 GiB at an offset above 4 GiB, in a sparse file; its memory is 64 MiB seen many
// times.
TEST(FileTest, ReadsAboveTwoGibibytesAreNotCut) {
  ScratchFile scratch(0);
  constexpr uint64_t kOffset = 5 * kGiB, kLength = 2 * kGiB + 64 * kMiB, kWindow = 64 * kMiB;
  ASSERT_EQ(ftruncate(scratch.fd(), static_cast<off_t>(kOffset + kLength)), 0);
  const uint8_t mark[4] = {'m', 'a', 'r', 'k'};
  ASSERT_EQ(pwrite(scratch.fd(), mark, 4, static_cast<off_t>(kOffset + kLength - 4)), 4);
  const int memory = memfd_create("window", 0);
  ASSERT_EQ(ftruncate(memory, kWindow), 0);
  auto* base =
      static_cast<uint8_t*>(mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  for (uint64_t at = 0; at < kLength; at += kWindow) {
    ASSERT_NE(mmap(base + at, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0),
              MAP_FAILED);
  }
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  if ((*file)->direct_fd() >= 0) {
    auto queue = MakeReadQueue({file->get()}, {});
    ASSERT_TRUE(queue.ok());
    ReadRequest request;
    request.offset = kOffset;
    request.length = kLength;
    request.buffer = base;
    (*queue)->Submit(&request);
    ASSERT_TRUE((*queue)->Wait(&request).ok()) << request.status.ToString();
    EXPECT_EQ((*queue)->bytes_read(), kLength);
    EXPECT_EQ(std::string(reinterpret_cast<char*>(base + kLength - 4), 4), "mark");
  }
  // ReadExact cuts at 1 GiB by itself; going beyond that once shows that it goes on.
  constexpr uint64_t kTail = kGiB + 4096;
  base[kLength - 1] = 0;
  ASSERT_TRUE((*file)->ReadExact(kOffset + kLength - kTail, {base + kLength - kTail, kTail}).ok());
  EXPECT_EQ(base[kLength - 1], 'k');
  munmap(base, kLength);
  close(memory);
}

}  // namespace
}  // namespace sluice
