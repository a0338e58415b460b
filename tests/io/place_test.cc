// The threads of a queue run where they are told to.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "io/read_queue.h"
#include "io/uring_probe.h"
#include "scratch.h"

namespace sluice {
namespace {

// The processors of each thread named "sluice-io".
std::vector<std::vector<int>> ReadingThreads() {
  std::vector<std::vector<int>> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    cpu_set_t set;
    if (!std::getline(comm, name) || name != "sluice-io") continue;
    if (sched_getaffinity(std::stoi(task.path().filename()), sizeof(set), &set) != 0) continue;
    found.emplace_back();
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &set)) found.back().push_back(cpu);
    }
  }
  return found;
}

// A thread names itself first and places itself next, some time after the queue was made.
void ExpectPlace(size_t threads, const std::vector<int>& cpus) {
  std::vector<std::vector<int>> found;
  for (int wait = 0; wait < 2000; ++wait) {
    found = ReadingThreads();
    if (found == std::vector<std::vector<int>>(threads, cpus)) return;
    usleep(1000);
  }
  ADD_FAILURE() << found.size() << " reading threads, or elsewhere";
}

TEST(Place, ReadingThreadsStayOnTheirProcessors) {
  const std::vector<int> allowed = AllowedCpus();
  testing::ScratchFile scratch(1 << 20);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  for (const IoBackend backend : {IoBackend::kBuffered, IoBackend::kPread, IoBackend::kUring}) {
    if (backend != IoBackend::kBuffered && (*file)->direct_fd() < 0) continue;
    if (backend == IoBackend::kUring && !ProbeUring().available) continue;
    for (const std::vector<int>& cpus : {std::vector<int>{}, std::vector<int>{allowed.back()}}) {
      ReadQueueOptions options;
      options.backend = backend;
      options.depth = 3;
      options.cpus = cpus;
      auto queue = MakeReadQueue({file->get()}, options);
      ASSERT_TRUE(queue.ok()) << queue.status().ToString();
      ExpectPlace(backend == IoBackend::kUring ? 1 : 3, cpus.empty() ? allowed : cpus);
      EXPECT_EQ(AllowedCpus(), allowed);  // the maker stays free
    }
  }
}

TEST(Place, AProcessorThatIsNotThereIsNoError) {
  testing::ScratchFile scratch(1 << 20);
  auto file = File::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  ReadQueueOptions options;
  options.backend = IoBackend::kBuffered;
  options.depth = 1;
  options.cpus = {100000};
  auto queue = MakeReadQueue({file->get()}, options);
  ASSERT_TRUE(queue.ok());
  testing::Buffer buffer(4096);
  ReadRequest request;
  request.length = 4096;
  request.buffer = buffer.data();
  (*queue)->Submit(&request);
  EXPECT_TRUE((*queue)->Wait(&request).ok());
  EXPECT_TRUE(testing::HoldsPattern(buffer.data(), 0, 4096));
}

}  // namespace
}  // namespace sluice
