// One aligned anonymous mapping with a reservation.
//
// Contract: page-aligned, zeroed, optionally pre-faulted; released in full on destruction. Not
// thread-safe to move, safe to read and write from many threads like any memory. Never grows.
// Huge pages are asked for where every page will be touched: they never make the resident set
// larger than the reservation, and direct reads into them are up to 2.4 times as fast (docs/io.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "memory/ledger.h"

namespace sluice {

// When the pages of an arena come into being.
enum class Touch {
  kLazily,  // as they are used, which may be never
  kLater,   // all of them, by Populate or by whoever fills the arena
  kNow,     // all of them, in Make
};

class Arena {
 public:
  Arena() = default;
  // Reserves `bytes` (rounded up to pages) under `tag` and maps them.
  static Result<Arena> Make(Ledger* ledger, const std::string& tag, uint64_t bytes, Touch touch);
  // Brings every page into being, so that none has to be in the step loop; pages that are there
  // keep their bytes. Any one thread, while others use the memory.
  Status Populate();
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
  std::string tag_;
};

}  // namespace sluice
