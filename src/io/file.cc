#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr uint64_t kReadBytesMax = kGiB;  // below the kernel's cut at 2 GiB - 4 KiB
constexpr uint32_t kAlignmentMax = 64 * 1024;
constexpr int kEagainMax = 5000;  // times 1 ms: a device that says "again" for 5 s is broken

// The same block once through the page cache and once directly, into a buffer that holds the
// complement of every byte expected: a volume that claims success and leaves the buffer untouched
// cannot pass. The address and the length are multiples of `alignment` and of nothing larger, so an
// alignment that is too small shows.
bool DirectReadHonest(const File& file, int direct_fd, uint64_t offset, uint32_t alignment) {
  const uint64_t valid = std::min<uint64_t>(alignment, file.size() - offset);
  uint8_t* memory = nullptr;
  if (posix_memalign(reinterpret_cast<void**>(&memory), 2 * alignment, 4 * alignment) != 0)
    return false;
  const std::unique_ptr<uint8_t, decltype(&free)> holder(memory, &free);
  uint8_t* direct = memory + alignment;
  uint8_t* expected = memory + 2 * alignment;
  if (!file.ReadExact(offset, {expected, static_cast<size_t>(valid)}).ok()) return false;
  for (uint64_t i = 0; i < valid; ++i) direct[i] = static_cast<uint8_t>(~expected[i]);
  ssize_t got;
  do {
    got = pread(direct_fd, direct, alignment, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got >= static_cast<ssize_t>(valid) && memcmp(direct, expected, valid) == 0;
}

// Smallest alignment at which direct reads of the first, a middle and the last block are true; 0:
// none.
uint32_t ProbeAlignment(const File& file, int direct_fd) {
  for (uint32_t alignment = 512; alignment <= kAlignmentMax; alignment *= 2) {
    const uint64_t last = AlignDown(file.size() - 1, alignment);
    // An odd multiple, so that a larger hidden alignment is found out.
    const uint64_t middle = std::min(last, AlignDown(file.size() / 2, 2 * alignment) + alignment);
    if (DirectReadHonest(file, direct_fd, 0, alignment) &&
        DirectReadHonest(file, direct_fd, middle, alignment) &&
        DirectReadHonest(file, direct_fd, last, alignment)) {
      return alignment;
    }
  }
  return 0;
}

}  // namespace

Status ReadError(const std::string& path, uint64_t offset, uint64_t wanted, uint64_t got,
                 int error) {
  const std::string what =
      error == 0 ? "unexpected end of file" : fmt::format("read failed: {}", strerror(error));
  const char* hint = error == 0 ? "the file is cut short or shrank while in use; fetch it again"
                                : "check the disk and the kernel log";
  return Status(Code::kIo, what,
                fmt::format("{}, offset {}, wanted {} bytes, got {}", path, offset, wanted, got),
                hint);
}

Status File::ReadExact(uint64_t offset, MutableByteSpan out) const {
  uint64_t got = 0;
  int again = 0;
  while (got < out.size()) {
    const uint64_t want = std::min<uint64_t>(out.size() - got, kReadBytesMax);
    const ssize_t n = pread(fd_, out.data() + got, want, static_cast<off_t>(offset + got));
    if (n > 0) {
      got += static_cast<uint64_t>(n);
      again = 0;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN && ++again < kEagainMax) {
      const timespec pause = {0, 1000000};
      nanosleep(&pause, nullptr);
    } else {
      return ReadError(path_, offset, out.size(), got, n < 0 ? errno : 0);
    }
  }
  return Status();
}

Result<std::unique_ptr<File>> File::Open(const std::string& path) {
  struct stat info = {};
  // stat before open: opening a FIFO would block.
  if (stat(path.c_str(), &info) != 0) {
    return Status(Code::kIo, fmt::format("cannot open: {}", strerror(errno)), path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::kIo,
                  S_ISDIR(info.st_mode) ? "is a folder, not a file" : "not a regular file", path);
  }
  std::unique_ptr<File> file(new File);
  file->path_ = path;
  file->fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file->fd_ < 0 || fstat(file->fd_, &info) != 0) {
    return Status(Code::kIo, fmt::format("cannot open: {}", strerror(errno)), path);
  }
  file->size_ = static_cast<uint64_t>(info.st_size);
  if (file->size_ > 0) file->ProbeDirect();
  return file;
}

void File::ProbeDirect() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return;
  // Without read-ahead: its marks on pages would draw in whole pieces later, behind the back of a
  // queue that empties the page cache after itself.
  posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  const uint32_t alignment = ProbeAlignment(*this, fd);
  posix_fadvise(fd_, 0, 0, POSIX_FADV_NORMAL);
  if (alignment == 0) {
    close(fd);
    direct_fault_ = "direct reads open but do not deliver";
    return;
  }
  direct_fd_ = fd;
  direct_alignment_ = alignment;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
  if (direct_fd_ >= 0) close(direct_fd_);
}

}  // namespace sluice
