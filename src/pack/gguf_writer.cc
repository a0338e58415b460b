#include "pack/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sluice {
namespace {

constexpr uint64_t kBufferBytes = 8 * kMiB;
constexpr uint64_t kPageBytes = 4096;  // alignment that every direct write here has

template <typename T>
void Put(std::vector<uint8_t>* out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out->insert(out->end(), p, p + sizeof value);
}
void PutString(std::vector<uint8_t>* out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out->insert(out->end(), text.begin(), text.end());
}

enum GgufType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void GgufHeaderWriter::Key(std::string_view key, uint32_t type) {
  PutString(&keys_, key);
  Put<uint32_t>(&keys_, type);
  ++key_count_;
}
void GgufHeaderWriter::U32(std::string_view key, uint32_t value) {
  Key(key, kU32);
  Put(&keys_, value);
}
void GgufHeaderWriter::F32(std::string_view key, float value) {
  Key(key, kF32);
  Put(&keys_, value);
}
void GgufHeaderWriter::Bool(std::string_view key, bool value) {
  Key(key, kBool);
  Put<uint8_t>(&keys_, value ? 1 : 0);
}
void GgufHeaderWriter::String(std::string_view key, std::string_view value) {
  Key(key, kString);
  PutString(&keys_, value);
}
void GgufHeaderWriter::I32s(std::string_view key, const std::vector<int32_t>& values) {
  Key(key, kArray);
  Put<uint32_t>(&keys_, kI32);
  Put<uint64_t>(&keys_, values.size());
  for (int32_t value : values) Put(&keys_, value);
}
void GgufHeaderWriter::Strings(std::string_view key, const std::vector<std::string>& values) {
  Key(key, kArray);
  Put<uint32_t>(&keys_, kString);
  Put<uint64_t>(&keys_, values.size());
  for (const std::string& value : values) PutString(&keys_, value);
}

uint64_t GgufHeaderWriter::Tensor(std::string_view name, const std::vector<uint64_t>& dims,
                                  WeightType type, uint64_t bytes) {
  const uint64_t offset = data_bytes_;
  PutString(&tensors_, name);
  Put<uint32_t>(&tensors_, static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) Put(&tensors_, dim);
  Put<uint32_t>(&tensors_, static_cast<uint32_t>(type));
  Put(&tensors_, offset);
  ++tensor_count_;
  data_bytes_ += AlignUp(bytes, kGgufAlignment);
  return offset;
}

std::vector<uint8_t> GgufHeaderWriter::Build() const {
  std::vector<uint8_t> out = {'G', 'G', 'U', 'F'};
  out.reserve(32 + keys_.size() + tensors_.size());
  Put<uint32_t>(&out, 3);
  Put(&out, tensor_count_);
  Put(&out, key_count_);
  out.insert(out.end(), keys_.begin(), keys_.end());
  out.insert(out.end(), tensors_.begin(), tensors_.end());
  out.resize(AlignUp(out.size(), kGgufAlignment));
  return out;
}

void StreamFile::FreeAligned::operator()(uint8_t* p) const { std::free(p); }

Result<std::unique_ptr<StreamFile>> StreamFile::Create(const std::string& path,
                                                       uint64_t total_bytes,
                                                       uint64_t free_bytes_min) {
  std::unique_ptr<StreamFile> file(new StreamFile);
  file->path_ = path;
  file->temporary_ = path + ".tmp";
  file->total_bytes_ = total_bytes;
  SLUICE_TRY(file->Open());
  SLUICE_TRY(file->Reserve(free_bytes_min));
  for (auto& buffer : file->buffer_) {
    buffer.reset(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kBufferBytes)));
    if (!buffer) return Status(Code::kFailed, "out of memory for a write buffer", path);
  }
  file->writer_ = std::thread([raw = file.get()] { raw->WriterLoop(); });
  return file;
}

Status StreamFile::Open() {
  struct stat info {};
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Status(Code::kUsage, "the output is not a regular file", path_, "name a file");
  }
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    return Status(Code::kIo, fmt::format("cannot create: {}", std::strerror(errno)), temporary_);
  }
  // A stale file of a killed run is taken over, one that is being written is not.
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kIo, "another process is writing this file", temporary_);
  }
  struct stat named {};
  if (fstat(fd_, &info) != 0 || stat(temporary_.c_str(), &named) != 0 ||
      named.st_ino != info.st_ino) {
    return Status(Code::kIo, "another process has just finished this file", temporary_);
  }
  owned_ = true;
  if (ftruncate(fd_, 0) != 0) {
    return Status(Code::kIo, fmt::format("cannot empty: {}", std::strerror(errno)), temporary_);
  }
  const int flags = fcntl(fd_, F_GETFL);
  direct_ = flags >= 0 && fcntl(fd_, F_SETFL, flags | O_DIRECT) == 0;
  return Status();
}

Status StreamFile::Reserve(uint64_t free_bytes_min) {
  struct statvfs disk {};
  if (statvfs(FolderOf(path_).c_str(), &disk) == 0) {
    const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    const std::optional<uint64_t> need = CheckedAdd(total_bytes_, free_bytes_min);
    if (!need || *need > free_bytes) {
      return Status(Code::kIo,
                    fmt::format("not enough room: the file takes {}, {} are free",
                                FormatBytes(total_bytes_), FormatBytes(free_bytes)),
                    path_,
                    fmt::format("{} must stay free; write to another disk or remove something",
                                FormatBytes(free_bytes_min)));
    }
  }
  if (total_bytes_ == 0) return Status();
  // Room taken now cannot run out later. Not every file system can; libc's posix_fallocate would
  // then write every block itself.
  if (fallocate(fd_, 0, 0, static_cast<off_t>(total_bytes_)) == 0) return Status();
  return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR ? Status()
                                                                  : WriteFailed(0, errno);
}

StreamFile::~StreamFile() { Abandon(); }

void StreamFile::Abandon() {
  (void)StopWriter();
  if (owned_) unlink(temporary_.c_str());
  owned_ = false;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

MutableByteSpan StreamFile::Space() {
  return MutableByteSpan(buffer_[current_].get() + used_, kBufferBytes - used_);
}

Status StreamFile::Advance(uint64_t n) {
  used_ += n;
  return used_ == kBufferBytes ? Submit() : Status();
}

Status StreamFile::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    const MutableByteSpan space = Space();
    const uint64_t n = std::min<uint64_t>(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), n);
    bytes = bytes.subspan(n);
    SLUICE_TRY(Advance(n));
  }
  return Status();
}

// Hands the current buffer to the thread once the other one is written.
Status StreamFile::Submit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_ == nullptr; });
  if (!failed_.ok()) return failed_;
  pending_ = buffer_[current_].get();
  pending_bytes_ = used_;
  pending_offset_ = submitted_;
  submitted_ += used_;
  used_ = 0;
  current_ ^= 1;
  changed_.notify_all();
  return Status();
}

void StreamFile::WriterLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return pending_ != nullptr || stop_; });
    if (pending_ == nullptr) return;
    const uint8_t* data = pending_;
    const uint64_t n = pending_bytes_, offset = pending_offset_;
    lock.unlock();
    const Status status = WriteChunk(data, n, offset);
    lock.lock();
    if (failed_.ok()) failed_ = status;
    pending_ = nullptr;
    changed_.notify_all();
  }
}

Status StreamFile::StopWriter() {
  if (!writer_.joinable()) return failed_;
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  writer_.join();
  return failed_;
}

Status StreamFile::WriteFailed(uint64_t offset, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status(Code::kIo,
                fmt::format("cannot write at offset {}: {}", offset, std::strerror(error)), path_,
                full ? "the disk is full; nothing was left behind" : "");
}

Status StreamFile::WriteChunk(const uint8_t* data, uint64_t n, uint64_t offset) {
  // The last chunk is padded to whole pages, and cut to size by Commit.
  const uint64_t padded = direct_ ? AlignUp(n, kPageBytes) : n;
  for (uint64_t done = 0; done < padded;) {
    const ssize_t wrote =
        pwrite(fd_, data + done, padded - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && direct_) {  // accepted the flag, refuses the writes
      direct_ = false;
      fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_DIRECT);
      continue;
    }
    if (wrote <= 0) return WriteFailed(offset + done, wrote < 0 ? errno : ENOSPC);
    done += static_cast<uint64_t>(wrote);
  }
  if (!direct_) DropBehind(offset, n);
  return Status();
}

// Starts writing this chunk out, waits for the one before it and drops that from the page cache.
void StreamFile::DropBehind(uint64_t offset, uint64_t n) {
  sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(n), SYNC_FILE_RANGE_WRITE);
  if (offset < kBufferBytes) return;
  const auto before = static_cast<off_t>(offset - kBufferBytes);
  sync_file_range(fd_, before, kBufferBytes,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  posix_fadvise(fd_, before, kBufferBytes, POSIX_FADV_DONTNEED);
}

Status StreamFile::Commit() {
  // A short last chunk is padded with zeros for direct writes.
  std::memset(buffer_[current_].get() + used_, 0,
              std::min(AlignUp(used_, kPageBytes), kBufferBytes) - used_);
  if (used_ > 0) SLUICE_TRY(Submit());
  SLUICE_TRY(StopWriter());
  if (submitted_ != total_bytes_) {
    return Status(Code::kFailed,
                  fmt::format("{} bytes were written, {} announced", submitted_, total_bytes_),
                  path_);
  }
  if (ftruncate(fd_, static_cast<off_t>(total_bytes_)) != 0 || fsync(fd_) != 0) {
    return WriteFailed(total_bytes_, errno);
  }
  if (!direct_) posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Status(Code::kIo, fmt::format("cannot rename: {}", std::strerror(errno)), temporary_);
  }
  owned_ = false;
  close(fd_);
  fd_ = -1;
  return Status();
}

}  // namespace sluice
