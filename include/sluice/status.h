// Errors as values for every public call.
//
// Contract: a Status is ok or carries a code and three short texts (what, where, hint) that print
// as the one-line error `sluice: error: WHAT (WHERE); HINT`. Immutable, cheap to copy when ok, safe
// to pass between threads. No exception crosses a room; a Result holds a value or a Status that is
// not ok.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace sluice {

// The number is the process exit code of the command line (DESIGN: 0 done ... 7 other failure).
enum class Code {
  kOk = 0,
  kUsage = 2,        // the caller asked for something that makes no sense
  kBadModel = 3,     // a model file is damaged, inconsistent or unsupported
  kBudget = 4,       // the budget is below the floor
  kIo = 5,           // a read, write or open failed
  kContextFull = 6,  // no room left in the context
  kFailed = 7,       // anything else
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string what, std::string where = {}, std::string hint = {})
      : detail_(std::make_shared<const Detail>(
            Detail{code, std::move(what), std::move(where), std::move(hint)})) {}

  bool ok() const { return !detail_; }
  Code code() const { return detail_ ? detail_->code : Code::kOk; }
  const std::string& what() const { return detail_ ? detail_->what : Empty(); }
  const std::string& where() const { return detail_ ? detail_->where : Empty(); }
  const std::string& hint() const { return detail_ ? detail_->hint : Empty(); }

  // `WHAT (WHERE); HINT` without the empty parts; always one line.
  std::string ToString() const;

 private:
  struct Detail {
    Code code;
    std::string what, where, hint;
  };
  static const std::string& Empty() {
    static const std::string empty;
    return empty;
  }
  std::shared_ptr<const Detail> detail_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace sluice
