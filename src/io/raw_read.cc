#include "io/raw_read.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr uint64_t kReadBytesMax = kGiB;  // the kernel cuts one read at 2 GiB - 4 KiB
constexpr int kEagainMax = 5000;  // times 1 ms: a device that says "again" for 5 s is broken

// Bytes read into [got, want): fewer only at the end of the file or on an error (then *error is
// set). A short direct read ends the loop too when the rest would start at an unaligned place.
uint64_t ReadLoop(const RawRead& read, int fd, const Piece& piece, uint64_t got, uint64_t want,
                  uint64_t granule, int* error) {
  *error = 0;
  int again = 0;
  while (got < want && got % granule == 0) {
    const ssize_t n = read(fd, piece.buffer + got, std::min(want - got, kReadBytesMax),
                           static_cast<off_t>(piece.offset + got));
    if (n > 0) {
      got += static_cast<uint64_t>(n);
      again = 0;
    } else if (n == 0) {
      break;
    } else if (errno == EAGAIN && ++again < kEagainMax) {
      const timespec pause = {0, 1000000};
      nanosleep(&pause, nullptr);
    } else if (errno != EINTR) {
      *error = errno;
      break;
    }
  }
  return got;
}

}  // namespace

RawRead SystemRead() {
  return [](int fd, void* buffer, size_t bytes, off_t offset) {
    return pread(fd, buffer, bytes, offset);
  };
}

bool DirectReadRefused(int error) {
  return error == EINVAL || error == EAGAIN || error == EINTR || error == ECANCELED ||
         error == EOPNOTSUPP || error == ENOMEM;
}

std::string RefusalText(const File& file) {
  return fmt::format("{}: a direct read was refused ({}); such reads go through the page cache",
                     file.path(), strerror(file.direct_refused()));
}

void NoteRefusal(const File& file, int error) {
  if (file.NoteDirectRefused(error))
    LogOnce(LogLevel::kNotice, "io.direct." + file.path(), RefusalText(file));
}

Status ReadPiece(const RawRead& read, const Piece& piece, bool direct) {
  uint64_t got = 0;
  if (direct) {
    int error = 0;
    got = ReadLoop(read, piece.file->direct_fd(), piece, 0, piece.length,
                   piece.file->direct_alignment(), &error);
    if (got >= piece.valid) return Status();
    if (error != 0 && !DirectReadRefused(error)) {
      return ReadError(piece.file->path(), piece.offset, piece.valid, got, error);
    }
    if (error != 0) NoteRefusal(*piece.file, error);
  }
  return FinishBuffered(read, piece, got);
}

Status FinishBuffered(const RawRead& read, const Piece& piece, uint64_t got) {
  const uint64_t from = got;
  int error = 0;
  got = ReadLoop(read, piece.file->fd(), piece, from, piece.valid, 1, &error);
  // The page cache counts against the process's memory cgroup: weights that were copied out leave
  // it.
  const uint64_t page_bytes = PageBytes();
  const uint64_t start = AlignDown(piece.offset + from, page_bytes);
  posix_fadvise(piece.file->fd(), static_cast<off_t>(start),
                static_cast<off_t>(AlignUp(piece.offset + got, page_bytes) - start),
                POSIX_FADV_DONTNEED);
  if (got >= piece.valid) return Status();
  return ReadError(piece.file->path(), piece.offset, piece.valid, got, error);
}

}  // namespace sluice
