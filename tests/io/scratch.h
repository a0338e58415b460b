// Files and buffers for the tests of this room.
//
// Contract: a scratch file is deleted with its object; SLUICE_IO_TEST_DIR chooses the folder (a
// tmpfs, a FUSE mount); its name holds "sluice_io_" for fault injection by path.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace sluice::testing {

inline uint8_t PatternAt(uint64_t offset) {
  const uint64_t x = (offset + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<uint8_t>((x >> 56) ^ (x >> 24));
}

class ScratchFile {
 public:
  explicit ScratchFile(uint64_t bytes) {
    const char* folder = getenv("SLUICE_IO_TEST_DIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/sluice_io_XXXXXX";
    fd_ = mkstemp(path_.data());
    EXPECT_GE(fd_, 0) << path_;
    std::vector<uint8_t> block(1 << 20);
    for (uint64_t at = 0; at < bytes; at += block.size()) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(block.size(), bytes - at));
      for (size_t i = 0; i < n; ++i) block[i] = PatternAt(at + i);
      EXPECT_EQ(pwrite(fd_, block.data(), n, static_cast<off_t>(at)), static_cast<ssize_t>(n));
    }
    fsync(fd_);
  }
  ~ScratchFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
};

// 64 KiB-aligned memory.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    void* p = nullptr;
    EXPECT_EQ(posix_memalign(&p, 64 * kKiB, bytes), 0);
    data_ = static_cast<uint8_t*>(p);
    for (uint64_t i = 0; i < bytes; ++i) data_[i] = 0xEE;
  }
  ~Buffer() { free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* data() { return data_; }
  MutableByteSpan span() { return {data_, bytes_}; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_;
};

inline ::testing::AssertionResult HoldsPattern(const uint8_t* data, uint64_t offset,
                                               uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (data[i] != PatternAt(offset + i)) {
      return ::testing::AssertionFailure() << "byte " << offset + i << " is " << int{data[i]}
                                           << ", not " << int{PatternAt(offset + i)};
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sluice::testing
