// One aligned anonymous mapping with a reservation.
//
// Contract: page-aligned, zeroed, optionally pre-faulted; released in full on destruction. Not
// thread-safe to move, safe to read and write from many threads like any memory. Never grows.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "memory/ledger.h"

namespace sluice {

class Arena {
 public:
  Arena() = default;
  // Reserves `bytes` (rounded up to pages) under `tag` and maps them. prefault touches every page
  // now so that no page fault happens in the step loop.
  static Result<Arena> Make(Ledger* ledger, const std::string& tag, uint64_t bytes, bool prefault);
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  MutableByteSpan span() const { return {data_, static_cast<size_t>(size_)}; }

  // Bump allocation for the owner; alignment a power of two. nullptr when it does not fit.
  uint8_t* Take(uint64_t bytes, uint64_t alignment = 64);
  template <typename T>
  T* TakeArray(uint64_t count) {
    return reinterpret_cast<T*>(Take(count * sizeof(T)));
  }

 private:
  Reservation reservation_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0, taken_ = 0;
};

}  // namespace sluice
