#include "memory/ledger.h"

#include <fmt/core.h>

#include "base/bytes.h"

namespace sluice {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  if (ledger_ != nullptr) ledger_->Return(line_, bytes_);
  ledger_ = std::exchange(other.ledger_, nullptr);
  line_ = std::exchange(other.line_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Reservation::~Reservation() {
  if (ledger_ != nullptr) ledger_->Return(line_, bytes_);
}

Result<Reservation> Ledger::Reserve(const std::string& tag, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (frozen_) {
    return Status(Code::kFailed,
                  fmt::format("{} bytes asked for after the ledger was frozen", bytes), tag,
                  "the plan must name every buffer before the model is opened");
  }
  const uint64_t free_bytes = budget_bytes_ - used_bytes_;
  if (bytes > free_bytes) {
    return Status(Code::kBudget,
                  fmt::format("{} bytes wanted, {} of the budget of {} are free", bytes, free_bytes,
                              budget_bytes_),
                  tag, fmt::format("raise --budget by {} bytes", bytes - free_bytes));
  }
  size_t line = 0;
  while (line < lines_.size() && lines_[line].tag != tag) ++line;
  if (line == lines_.size()) lines_.push_back({tag, 0});
  lines_[line].bytes += bytes;
  used_bytes_ += bytes;
  Reservation reservation;
  reservation.ledger_ = this;
  reservation.line_ = line;
  reservation.bytes_ = bytes;
  return reservation;
}

void Ledger::Freeze() {
  std::lock_guard<std::mutex> lock(mutex_);
  frozen_ = true;
}

bool Ledger::frozen() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return frozen_;
}

uint64_t Ledger::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

std::vector<Ledger::Line> Ledger::Lines() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lines_;
}

void Ledger::Return(size_t line, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  lines_[line].bytes -= bytes;
  used_bytes_ -= bytes;
}

}  // namespace sluice
