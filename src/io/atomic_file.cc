#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

namespace sluice {
namespace {

Status Failed(const char* what, const std::string& path) {
  return Status(Code::kIo, fmt::format("{}: {}", what, strerror(errno)), path);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Status WriteAll(int fd, ByteSpan bytes, const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot write", path);
    done += static_cast<size_t>(n);
  }
  return fsync(fd) == 0 ? Status() : Failed("cannot flush", path);
}

// A link stays a link: the file that it leads to is replaced.
std::string Target(const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_symlink(name, error)) return name;
  const std::filesystem::path real = std::filesystem::canonical(name, error);
  return error ? name : real.string();
}

void FlushFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems have no such thing
  close(fd);
}

}  // namespace

Status MakeFolders(const std::string& path, unsigned mode) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at < path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), mode) != 0 && errno != EEXIST && errno != EISDIR)
      return Failed("cannot make the folder", part);
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Failed("cannot use the folder", path);
  if (!S_ISDIR(info.st_mode)) return Status(Code::kIo, "not a folder", path);
  return {};
}

Status WriteFileAtomically(const std::string& name, ByteSpan bytes, unsigned mode) {
  const std::string path = Target(name);
  static std::atomic<uint32_t> count{0};  // two threads of one process must not share a name
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, getpid(), count++);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return Failed("cannot create", temporary);
  Status status = WriteAll(fd, bytes, path);
  if (close(fd) != 0 && status.ok()) status = Failed("cannot close", path);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = Failed("cannot rename to", path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  FlushFolder(FolderOf(path));
  return {};
}

Result<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("cannot open", path);
  std::string text;
  Status status;
  char piece[16384];
  while (true) {
    const ssize_t n = read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = Failed("cannot read", path);
    if (n <= 0) break;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > bytes_max) {
      status = Status(Code::kIo, fmt::format("larger than {} bytes", bytes_max), path);
      break;
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

}  // namespace sluice
