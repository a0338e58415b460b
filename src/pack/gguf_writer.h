// Writing GGUF v3: the header in memory, the data as a stream.
//
// Contract: GgufHeaderWriter collects keys and tensors in order and serialises them; offsets follow
// from the tensors' sizes (each padded to 32 bytes). StreamFile is a file that appears whole or not
// at all: it is written beside its target (PATH.tmp, locked against a second writer) through two
// 8 MiB buffers, one filled by the owner while a thread writes the other, and neither fills the
// page cache: O_DIRECT, or where that is refused, buffered writes that are dropped behind. Errors
// are kIo with path and offset; destroying a StreamFile without Commit removes the temporary file.
// Owner-thread only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/types.h"

namespace sluice {

constexpr uint64_t kGgufAlignment = 32;

class GgufHeaderWriter {
 public:
  void U32(std::string_view key, uint32_t value);
  void F32(std::string_view key, float value);
  void Bool(std::string_view key, bool value);
  void String(std::string_view key, std::string_view value);
  void I32s(std::string_view key, const std::vector<int32_t>& values);
  void Strings(std::string_view key, const std::vector<std::string>& values);

  // bytes: of the tensor's data. Returns the offset from the start of the data section.
  uint64_t Tensor(std::string_view name, const std::vector<uint64_t>& dims, WeightType type,
                  uint64_t bytes);

  uint64_t data_bytes() const { return data_bytes_; }
  // The whole header with the padding before the data section.
  std::vector<uint8_t> Build() const;

 private:
  void Key(std::string_view key, uint32_t type);

  std::vector<uint8_t> keys_, tensors_;
  uint64_t key_count_ = 0, tensor_count_ = 0, data_bytes_ = 0;
};

class StreamFile {
 public:
  // total_bytes: the size it will have; refused (kIo) unless that leaves free_bytes_min on the
  // disk.
  static Result<std::unique_ptr<StreamFile>> Create(const std::string& path, uint64_t total_bytes,
                                                    uint64_t free_bytes_min);
  ~StreamFile();
  StreamFile(const StreamFile&) = delete;
  StreamFile& operator=(const StreamFile&) = delete;

  // Room for the next bytes (never empty); Advance says how many were put there.
  MutableByteSpan Space();
  Status Advance(uint64_t n);
  Status Append(ByteSpan bytes);
  // Everything on the disk under the final name. total_bytes must have been written.
  Status Commit();

  bool direct() const { return direct_; }

 private:
  StreamFile() = default;
  Status Open();
  Status Reserve(uint64_t free_bytes_min);
  Status Submit();
  void WriterLoop();
  Status WriteChunk(const uint8_t* data, uint64_t n, uint64_t offset);
  Status WriteFailed(uint64_t offset, int error) const;
  void DropBehind(uint64_t offset, uint64_t n);
  Status StopWriter();
  void Abandon();

  std::string path_, temporary_;
  int fd_ = -1;
  bool direct_ = false, owned_ = false;
  uint64_t total_bytes_ = 0, submitted_ = 0;
  struct FreeAligned {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], FreeAligned> buffer_[2];
  uint32_t current_ = 0;  // the owner's buffer
  uint64_t used_ = 0;     // of it

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread writer_;
  // Under the mutex: what the thread has to write, and what became of it.
  const uint8_t* pending_ = nullptr;
  uint64_t pending_bytes_ = 0, pending_offset_ = 0;
  bool stop_ = false;
  Status failed_;
};

}  // namespace sluice
