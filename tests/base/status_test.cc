#include "base/status.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Status, OneLineWithoutEmptyParts) {
  EXPECT_EQ(Status().ToString(), "ok");
  EXPECT_EQ(Status(Code::kIo, "short read").ToString(), "short read");
  EXPECT_EQ(Status(Code::kIo, "short read", "a.gguf at 12", "is it whole?").ToString(),
            "short read (a.gguf at 12); is it whole?");
  EXPECT_EQ(Status(Code::kIo, "a\nb").ToString(), "a b");
}

Result<int> Half(int n) {
  if (n % 2 != 0) return Status(Code::kFailed, "odd");
  return n / 2;
}

Status Quarter(int n, int* out) {
  SLUICE_ASSIGN(const int half, Half(n));
  SLUICE_ASSIGN(*out, Half(half));
  return {};
}

TEST(Status, MacrosPropagate) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(10, &out).code(), Code::kFailed);
  const auto outer = [&]() -> Status {
    SLUICE_TRY(Quarter(7, &out));
    ADD_FAILURE() << "not reached";
    return {};
  };
  EXPECT_EQ(outer().what(), "odd");
}

}  // namespace
}  // namespace sluice
