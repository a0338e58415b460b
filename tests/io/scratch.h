// Files and buffers for the tests of this room.
//
// Contract: a scratch file is deleted with its object; SLUICE_IO_TEST_DIR chooses the folder (a
// tmpfs, a FUSE mount); its name holds "sluice_io_" for fault injection by path.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace sluice::testing {

// The bytes of every scratch file: no two neighbouring blocks are alike. At most 8 MiB of them.
inline ByteSpan Pattern(uint64_t bytes) {
  static const std::vector<uint8_t> pattern = [] {
    std::vector<uint8_t> p(8 * kMiB);
    for (uint64_t i = 0; i < p.size(); ++i) {
      const uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u;
      p[i] = static_cast<uint8_t>((x >> 56) ^ (x >> 24));
    }
    return p;
  }();
  return ByteSpan(pattern).first(bytes);
}

class ScratchFile {
 public:
  explicit ScratchFile(uint64_t bytes) {
    const char* folder = getenv("SLUICE_IO_TEST_DIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/sluice_io_XXXXXX";
    fd_ = mkstemp(path_.data());
    EXPECT_GE(fd_, 0) << path_;
    EXPECT_EQ(pwrite(fd_, Pattern(bytes).data(), bytes, 0), static_cast<ssize_t>(bytes));
    fsync(fd_);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);  // what writing left in the page cache
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
    memset(data_, 0xEE, bytes);
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
  const ByteSpan expected = Pattern(offset + bytes).subspan(offset);
  const uint8_t* wrong = std::mismatch(data, data + bytes, expected.begin()).first;
  if (wrong != data + bytes) {
    return ::testing::AssertionFailure()
           << "byte " << offset + static_cast<uint64_t>(wrong - data) << " is wrong";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sluice::testing
