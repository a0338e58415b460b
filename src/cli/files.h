// Files of the command line: whole inputs, and outputs that appear complete or not at all.
//
// Contract: an AtomicFile writes beside its target and renames at Commit; without Commit, or after
// an error, the temporary file is removed and the target is as it was. Targets that are no regular
// file (/dev/null, a pipe) are written directly. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice::cli {

// The whole file; "-" is standard input. kIo with the path; kUsage beyond bytes_max.
Result<std::string> ReadAll(const std::string& path, uint64_t bytes_max = 256 * kMiB);

// A file read in order, block by block.
class InputFile {
 public:
  static Result<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  ~InputFile();
  uint64_t size() const { return size_; }
  // Fills the span, or fails: a short file is kIo with the offset.
  Status ReadExact(MutableByteSpan out);

 private:
  InputFile() = default;
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0, offset_ = 0;
};

class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  ~AtomicFile();
  Status Write(ByteSpan bytes);
  Status Write(std::string_view text);
  Status Commit();

 private:
  AtomicFile() = default;
  void Abandon();
  std::string path_, temporary_;  // temporary_ empty: written directly
  int fd_ = -1;
  uint64_t offset_ = 0;
};

}  // namespace sluice::cli
