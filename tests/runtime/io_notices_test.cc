// Reading that steps down is said in the notices of the run: when it begins, and at any read later.
#include <filesystem>

#include "io/testing/faulty_read.h"
#include "runtime/engine_core.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using Files = std::vector<const File*>;

struct Opened {
  Opened() = default;
  Opened(Opened&&) = default;
  ~Opened() {
    if (core != nullptr) core->Return(std::move(sequence));
  }
  Status Step(uint32_t tokens) {
    std::vector<TokenId> ids(tokens);
    for (uint32_t i = 0; i < tokens; ++i) ids[i] = static_cast<TokenId>(i * 37 % 512);
    StepLoop::Request request;
    request.sequence = sequence.get();
    request.ids = ids;
    return core->Step(request);
  }
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<Sequence> sequence;
};

class IoNotices : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Forge(testing::Tiny("qwen3-30b-a3b"), folder_ / "m.gguf").ok());
  }
  Opened Open(decltype(CoreInput::make_queue) make_queue) {
    CoreInput input;
    Result<ModelSource> source = OpenModelSource(folder_ / "m.gguf", true);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    input.source = std::move(*source);
    input.options.need_text = false;
    input.options.threads = 1;
    input.options.context = 128;
    input.options.expert_slots = 4;
    input.options.budget_bytes = uint64_t{1} << 30;
    input.make_queue = std::move(make_queue);
    Opened opened;
    auto core = EngineCore::Open(std::move(input));
    EXPECT_TRUE(core.ok()) << core.status().ToString();
    opened.core = std::move(*core);
    opened.sequence = opened.core->NewSequence();
    return opened;
  }
  const test::TempFolder folder_;
};

TEST_F(IoNotices, NothingIsSaidWhenNothingSteppedDown) {
  Opened opened = Open([](const Files& files, ReadQueueOptions options) {
    options.backend = IoBackend::kBuffered;  // asked for
    return MakeReadQueue(files, options);
  });
  ASSERT_TRUE(opened.Step(20).ok());
  EXPECT_TRUE(opened.core->stats().notices.empty());
}

TEST_F(IoNotices, AVolumeThatRefusesDirectReadsInTheMiddleOfARun) {
  auto refuse = std::make_shared<std::atomic<bool>>(false);
  bool direct = false;
  Opened opened = Open([&](const Files& files, const ReadQueueOptions&) {
    direct = files[0]->direct_fd() >= 0;
    PoolQueueOptions pool;
    pool.direct = direct;
    pool.read = [refuse, fd = files[0]->direct_fd()](int at, void* to, size_t n, off_t offset) {
      if (*refuse && at == fd) {
        errno = EINVAL;
        return ssize_t{-1};
      }
      return pread(at, to, n, offset);
    };
    return PoolQueue::Make(files, std::move(pool));
  });
  if (!direct) GTEST_SKIP() << "SKIP: no direct reads in " << folder_.path();
  ASSERT_TRUE(opened.Step(20).ok());
  EXPECT_TRUE(opened.core->stats().notices.empty());
  *refuse = true;
  ASSERT_TRUE(opened.Step(20).ok());
  const std::vector<std::string> notices = opened.core->stats().notices;
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("a direct read was refused (Invalid argument)"), std::string::npos)
      << notices[0];
  EXPECT_NE(notices[0].find("m.gguf"), std::string::npos);
}

// Every engine says it, not only the first of the process.
TEST_F(IoNotices, WithoutIoUring) {
  for (int i = 0; i < 2; ++i) {
    Opened opened = Open([](const Files& files, const ReadQueueOptions& options) {
      auto queue = MakeReadQueue(files, options);
      if (queue.ok()) (*queue)->set_step_down("io_uring is not available (test)");
      return queue;
    });
    const std::vector<std::string> notices = opened.core->stats().notices;
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_EQ(notices[0], "io_uring is not available (test)");
  }
}

}  // namespace
}  // namespace sluice
