#include "memory/arena.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/cpu.h"

namespace sluice {
namespace {

constexpr int kMadvPopulateWrite =
    23;  // MADV_POPULATE_WRITE, Linux 5.14; older headers lack the name
constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kPopulateBytes = 2 * kHugePageBytes;

// Maps `bytes` at a multiple of `alignment`; the slack of the search is given back at once.
uint8_t* MapAligned(uint64_t bytes, uint64_t alignment, uint64_t page_bytes) {
  const uint64_t slack = alignment > page_bytes ? alignment - page_bytes : 0;
  void* base =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(base);
  const uint64_t aligned = AlignUp(start, alignment);
  if (aligned > start) munmap(base, aligned - start);
  const uint64_t tail = start + slack - aligned;
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<uint8_t*>(aligned);
}

bool TouchPages(uint8_t* data, uint64_t bytes, uint64_t page_bytes) {
  if (madvise(data, bytes, kMadvPopulateWrite) == 0) return true;
  if (errno == ENOMEM || errno == EFAULT) return false;
  // An old kernel or qemu: one write per page does the same. volatile, or the store of a zero
  // vanishes.
  for (uint64_t at = 0; at < bytes; at += page_bytes) {
    static_cast<volatile uint8_t*>(data)[at] = 0;
  }
  return true;
}

Status Refused(uint64_t bytes, const std::string& tag) {
  return Status(Code::kFailed,
                fmt::format("the system refused {} bytes: {}", bytes, strerror(errno)), tag,
                "lower --budget or free memory");
}

}  // namespace

Result<Arena> Arena::Make(Ledger* ledger, const std::string& tag, uint64_t bytes, Touch touch) {
  const uint64_t page_bytes = PageBytes();
  if (bytes > UINT64_MAX - 2 * kHugePageBytes) {
    return Status(Code::kBudget, fmt::format("{} bytes wanted", bytes), tag);
  }
  Arena arena;
  const uint64_t size = AlignUp(bytes, page_bytes);
  SLUICE_ASSIGN(arena.reservation_, ledger->Reserve(tag, size));
  if (size == 0) return arena;
  const bool huge = touch != Touch::kLazily && size >= 2 * kHugePageBytes;
  uint8_t* data = MapAligned(size, huge ? kHugePageBytes : page_bytes, page_bytes);
  if (data == nullptr) {
    return Status(Code::kFailed, fmt::format("cannot map {} bytes: {}", size, strerror(errno)), tag,
                  "check the address space limit (ulimit -v)");
  }
  arena.data_ = data;
  arena.size_ = size;
  arena.tag_ = tag;
  if (huge) madvise(data, size, MADV_HUGEPAGE);  // advice: a refusal costs speed only
  if (touch == Touch::kNow && !TouchPages(data, size, page_bytes)) return Refused(size, tag);
  return arena;
}

// In pieces: the kernel holds the lock of the whole address space for the length of a call, and the
// owner's first mmap or munmap would wait for all of it (2.4 s were seen).
Status Arena::Populate() {
  for (uint64_t at = 0; at < size_; at += kPopulateBytes) {
    if (madvise(data_ + at, std::min(kPopulateBytes, size_ - at), kMadvPopulateWrite) == 0)
      continue;
    // An old kernel knows no such advice: then the pages come as they are used.
    return errno == ENOMEM || errno == EFAULT ? Refused(size_, tag_) : Status();
  }
  return {};
}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) munmap(data_, size_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  taken_ = std::exchange(other.taken_, 0);
  tag_ = std::move(other.tag_);
  reservation_ = std::move(other.reservation_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

uint8_t* Arena::Take(uint64_t bytes, uint64_t alignment) {
  const uint64_t start = AlignUp(taken_, alignment);
  if (start > size_ || bytes > size_ - start) return nullptr;
  taken_ = start + bytes;
  return data_ + start;
}

}  // namespace sluice
