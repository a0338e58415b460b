// The ledger: every byte the engine holds has a tag and an owner.
//
// Contract: Reserve draws `bytes` from the budget or fails with kBudget naming tag, wanted and free
// bytes. A Reservation returns its bytes when destroyed (movable, not copyable). Freeze() forbids
// further reserves: after open, nothing may grow. Thread-safe. Bytes that are not drawn from the
// ledger (code, libraries, stacks) are represented by a reservation too, measured at open.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice {

class Ledger;

class [[nodiscard]] Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Ledger;
  Ledger* ledger_ = nullptr;
  size_t line_ = 0;
  uint64_t bytes_ = 0;
};

class Ledger {
 public:
  struct Line {
    std::string tag;
    uint64_t bytes = 0;
  };

  explicit Ledger(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  Result<Reservation> Reserve(const std::string& tag, uint64_t bytes);
  void Freeze();
  bool frozen() const;
  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const;
  std::vector<Line> Lines() const;  // tags in order of first use, bytes now held

 private:
  friend class Reservation;
  void Return(size_t line, uint64_t bytes);

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  uint64_t used_bytes_ = 0;
  bool frozen_ = false;
};

}  // namespace sluice
