#include "cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sluice::cli {
namespace {

Status IoError(const std::string& what, const std::string& path) {
  return Status(Code::kIo, fmt::format("{}: {}", what, std::strerror(errno)), path);
}

constexpr size_t kReadBytes = 1 << 20;

}  // namespace

Result<std::string> ReadAll(const std::string& path, uint64_t bytes_max) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  const int fd = standard ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return IoError("cannot open", name);
  std::string data;
  Status status;
  while (true) {
    const size_t have = data.size();
    if (have > bytes_max) {
      status = Status(Code::kUsage, fmt::format("more than {}", FormatBytes(bytes_max)), name);
      break;
    }
    data.resize(have + kReadBytes);
    const ssize_t got = read(fd, data.data() + have, kReadBytes);
    data.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = IoError("cannot read", name);
    if (got <= 0) break;
  }
  if (!standard) close(fd);
  if (!status.ok()) return status;
  return data;
}

Result<InputFile> InputFile::Open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return IoError("cannot open", path);
  struct stat info {};
  if (fstat(file.fd_, &info) != 0) return IoError("cannot read the size", path);
  if (!S_ISREG(info.st_mode)) return Status(Code::kUsage, "not a regular file", path);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(other.fd_), size_(other.size_), offset_(other.offset_) {
  other.fd_ = -1;
}
InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

Status InputFile::ReadExact(MutableByteSpan out) {
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t n = read(fd_, out.data() + got, out.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return IoError(fmt::format("cannot read at offset {}", offset_ + got), path_);
    if (n == 0) {
      return Status(Code::kIo,
                    fmt::format("the file ended at offset {}, wanted {}", offset_ + got,
                                offset_ + out.size()),
                    path_);
    }
    got += static_cast<size_t>(n);
  }
  offset_ += got;
  return Status();
}

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return Status(Code::kUsage, "the output is a folder", path, "name a file");
  }
  if (exists && !S_ISREG(info.st_mode)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    file.temporary_ = fmt::format("{}.{}.part", path, getpid());
    file.fd_ = open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (file.fd_ < 0) {
    file.temporary_.clear();  // not ours to remove
    return IoError("cannot create", path);
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(other.fd_),
      offset_(other.offset_) {
  other.fd_ = -1;
  other.temporary_.clear();
}
AtomicFile::~AtomicFile() { Abandon(); }

void AtomicFile::Abandon() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

Status AtomicFile::Write(ByteSpan bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Status status =
          IoError(fmt::format("cannot write at offset {}", offset_ + done), path_);
      Abandon();
      return status;
    }
    done += static_cast<size_t>(n);
  }
  offset_ += done;
  return Status();
}

Status AtomicFile::Write(std::string_view text) {
  return Write(ByteSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

Status AtomicFile::Commit() {
  // The data must be on the disk before the name is: a crash in between must not leave an empty
  // file.
  bool ok = temporary_.empty() || fsync(fd_) == 0;
  ok = close(fd_) == 0 && ok;
  fd_ = -1;
  if (ok && !temporary_.empty()) ok = rename(temporary_.c_str(), path_.c_str()) == 0;
  if (!ok) {
    const Status status = IoError("cannot finish writing", path_);
    Abandon();
    return status;
  }
  temporary_.clear();
  return Status();
}

}  // namespace sluice::cli
