// A file opened for reading.
//
// Contract: owns one or two descriptors (buffered always; direct when O_DIRECT opened and probed
// honest). ReadExact is thread-safe (pread), retries EINTR, completes short reads, and turns
// end-of-file or an errno into one Status that names path, offset, wanted and got bytes. Reads go
// through raw pread so that fault injection by LD_PRELOAD sees them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice {

// The one text of a failed read; error 0 means the end of the file came early.
Status ReadError(const std::string& path, uint64_t offset, uint64_t wanted, uint64_t got,
                 int error);

class File {
 public:
  static Result<std::unique_ptr<File>> Open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  Status ReadExact(uint64_t offset, MutableByteSpan out) const;

  int fd() const { return fd_; }
  // -1 when O_DIRECT is refused, or a probe with a poisoned buffer showed that it lies (DESIGN
  // section 3).
  int direct_fd() const { return direct_fd_; }
  // Why there is no direct_fd; for the notice or error of whoever does without.
  const char* direct_fault() const { return direct_fault_; }
  // Alignment that direct reads need for offset, length and address (bytes, power of two).
  uint32_t direct_alignment() const { return direct_alignment_; }
  // The errno with which a direct read was refused after all; 0 when none was. Thread-safe.
  int direct_refused() const { return direct_refused_.load(std::memory_order_relaxed); }
  // True for the first.
  bool NoteDirectRefused(int error) const {
    int none = 0;
    return direct_refused_.compare_exchange_strong(none, error, std::memory_order_relaxed);
  }

 private:
  File() = default;
  void ProbeDirect();

  std::string path_;
  uint64_t size_ = 0;
  int fd_ = -1, direct_fd_ = -1;
  const char* direct_fault_ = "direct reads are refused here";
  uint32_t direct_alignment_ = 4096;
  mutable std::atomic<int> direct_refused_{0};
};

}  // namespace sluice
