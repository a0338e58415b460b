#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(Log, SinkReceivesAndCanBeTakenAway) {
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  Log(LogLevel::kNotice, "one");
  SetLogSink({});
  Log(LogLevel::kNotice, "two");
  EXPECT_EQ(lines, std::vector<std::string>{"one"});
}

TEST(Log, OncePerKeyAcrossThreads) {
  static int round = 0;  // keys live as long as the process; --gtest_repeat needs fresh ones
  const std::string key = "log_test.once" + std::to_string(++round);
  int count = 0;
  SetLogSink([&](LogLevel level, std::string_view) { count += level == LogLevel::kWarning; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&key] {
      for (int j = 0; j < 50; ++j) LogOnce(LogLevel::kWarning, key, "said");
    });
  }
  for (std::thread& thread : threads) thread.join();
  LogOnce(LogLevel::kWarning, key + "other", "said");
  SetLogSink({});
  EXPECT_EQ(count, 2);
}

TEST(Log, SinkMayLog) {
  int depth = 0;
  SetLogSink([&](LogLevel, std::string_view) {
    if (++depth < 3) Log(LogLevel::kInfo, "again");
  });
  Log(LogLevel::kInfo, "first");
  SetLogSink({});
  EXPECT_EQ(depth, 3);
}

}  // namespace
}  // namespace sluice
