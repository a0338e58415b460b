// Run by tests/tree/fault_io_test.py under an LD_PRELOAD shim or a seccomp filter: the same read,
// and what must come of it, named by SLUICE_IO_EXPECT: "ok", "ok:BACKEND", or "error:TEXT".
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/log.h"
#include "io/read_queue.h"
#include "scratch.h"

namespace sluice {
namespace {

TEST(PreloadTest, ReadsTheFileOrSaysWhyNot) {
  const char* wanted = getenv("SLUICE_IO_EXPECT");
  if (wanted == nullptr) GTEST_SKIP() << "SKIP: run by tests/tree/fault_io_test.py";
  const std::string expect = wanted;
  std::vector<std::string> notices;
  SetLogSink([&](LogLevel level, std::string_view message) {
    if (level != LogLevel::kInfo) notices.emplace_back(message);
  });
  constexpr uint64_t kBytes = 3 * kMiB;
  testing::ScratchFile scratch(kBytes);
  testing::Buffer buffer(kBytes);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  auto queue = MakeReadQueue({file->get()}, {});
  ASSERT_TRUE(queue.ok()) << queue.status().ToString();
  ReadRequest request;
  request.length = kBytes;
  request.buffer = buffer.data();
  (*queue)->Submit(&request);
  const Status status = (*queue)->Wait(&request);
  if (expect.starts_with("error:")) {
    EXPECT_EQ(status.code(), Code::kIo);
    EXPECT_EQ(status.what(), expect.substr(6));
    EXPECT_NE(status.where().find(scratch.path() + ", offset "), std::string::npos)
        << status.where();
    EXPECT_NE(status.where().find("wanted "), std::string::npos);
    return;
  }
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(testing::HoldsPattern(buffer.data(), 0, kBytes));
  if (expect.starts_with("ok:")) {
    EXPECT_EQ((*queue)->name(), expect.substr(3));
    EXPECT_FALSE(notices.empty()) << "a step down must be said";
  }
  ASSERT_TRUE((*file)->ReadExact(kBytes - 1000, {buffer.data(), 1000}).ok());
  EXPECT_TRUE(testing::HoldsPattern(buffer.data(), kBytes - 1000, 1000));
  SetLogSink(nullptr);
}

}  // namespace
}  // namespace sluice
