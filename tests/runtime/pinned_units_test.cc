// Pinned weights that arrive while the engine already works: the same bits, and errors with a
// place.
#include "runtime/pinned_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "io/pool_queue.h"
#include "io/testing/memory_queue.h"
#include "runtime/engine_core.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using testing::MemoryQueue;

constexpr uint64_t kBlock = 4096;

// Units of `reads` neighbouring reads each, one after the other in file and memory.
struct Bench {
  std::vector<uint8_t> file;
  std::vector<uint8_t> memory;
  PinnedUnits units;

  Bench(uint32_t count, uint32_t reads) : file(count * reads * kBlock), memory(file.size()) {
    for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<uint8_t>(i * 31 + i / kBlock);
    for (uint32_t u = 0; u < count; ++u) {
      UnitLayout layout;
      for (uint64_t r = 0; r < reads; ++r)
        layout.reads.push_back({0, (u * reads + r) * kBlock, kBlock, r * kBlock});
      units.Add(u, layout, memory.data() + u * reads * kBlock);
    }
  }
  bool Whole(uint32_t unit, uint32_t reads) const {
    const size_t begin = unit * reads * kBlock, n = reads * kBlock;
    return std::equal(file.begin() + static_cast<long>(begin),
                      file.begin() + static_cast<long>(begin + n),
                      memory.begin() + static_cast<long>(begin));
  }
};

TEST(PinnedUnits, NeighboursShareARequestAndEachUnitIsAwaitedAlone) {
  Bench b(5, 3);
  MemoryQueue queue({ByteSpan(b.file)}, /*depth=*/1, /*alignment=*/1);
  b.units.Begin(&queue);
  EXPECT_EQ(queue.outstanding(), 5);
  EXPECT_FALSE(b.units.Ready(0));
  EXPECT_FALSE(b.units.complete());
  ASSERT_TRUE(b.units.Wait(3).ok());  // out of turn: it overtakes the others
  EXPECT_TRUE(b.Whole(3, 3));
  EXPECT_TRUE(b.units.Ready(3));
  EXPECT_FALSE(b.units.Ready(4));
  EXPECT_EQ(b.units.bytes_done(), 3 * kBlock);
  EXPECT_EQ(queue.outstanding(), 4);
  for (uint32_t u : b.units.ids()) ASSERT_TRUE(b.units.Wait(u).ok());
  EXPECT_TRUE(b.units.complete());
  EXPECT_TRUE(b.memory == b.file);
  EXPECT_TRUE(b.units.Wait(99).ok()) << "a unit that streams is not this one's business";
}

TEST(PinnedUnits, MoreUnitsThanTheQueueHolds) {
  Bench b(1500, 1);
  MemoryQueue queue({ByteSpan(b.file)}, /*depth=*/4, /*alignment=*/1);
  b.units.Begin(&queue);
  for (uint32_t u = 0; u < 1500; ++u) ASSERT_TRUE(b.units.Wait((u * 7) % 1500).ok()) << u;
  EXPECT_TRUE(b.memory == b.file);
  EXPECT_TRUE(b.units.complete());
}

TEST(PinnedUnits, AFailedReadIsReportedAndTriedAgain) {
  Bench b(3, 2);
  bool broken = true;
  MemoryQueue queue({ByteSpan(b.file)}, 4, 1, [&](const ReadRequest& r) {
    return broken && r.offset == 2 * kBlock ? Status(Code::kIo, "planned fault") : Status();
  });
  b.units.Begin(&queue);
  while (queue.outstanding() > 0) queue.Poll();  // it fails while nobody waits
  EXPECT_TRUE(b.units.Ready(0));
  EXPECT_FALSE(b.units.Ready(1));
  EXPECT_EQ(b.units.Wait(1).what(), "planned fault");
  EXPECT_EQ(b.units.Wait(1).what(), "planned fault") << "it was asked for again and failed again";
  EXPECT_TRUE(b.units.Wait(0).ok());
  EXPECT_TRUE(b.units.Wait(2).ok());
  EXPECT_FALSE(b.units.complete());
  broken = false;
  EXPECT_TRUE(b.units.Wait(1).ok());
  EXPECT_TRUE(b.units.complete());
  EXPECT_TRUE(b.memory == b.file);
}

// Engines over a small file: a mixture whose dense part is pinned.
class LatePinned : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_ / "model.gguf";
    ASSERT_TRUE(Forge(testing::Tiny("qwen3-30b-a3b"), path_).ok());
    Result<ModelSource> source = OpenModelSource(path_, true);
    ASSERT_TRUE(source.ok());
    Result<ModelMap> map = BindSource(&*source);
    ASSERT_TRUE(map.ok());
    map_ = std::move(*map);
  }
  EngineOptions Options() const {
    EngineOptions o;
    o.need_text = false;
    o.threads = 2;
    o.context = 128;
    o.budget_bytes = uint64_t{1} << 30;
    o.expert_slots = 12;
    return o;
  }
  // Reads that touch `extent` do as `at` says: an errno to fail with, or 0 after it has waited.
  Result<std::unique_ptr<EngineCore>> Open(const Extent& extent, std::function<int()> at) {
    CoreInput input;
    SLUICE_ASSIGN(input.source, OpenModelSource(path_, true));
    input.options = Options();
    PoolQueueOptions pool;
    pool.direct = false;
    pool.read = [extent, at](int fd, void* buffer, size_t bytes, off_t offset) -> ssize_t {
      const auto begin = static_cast<off_t>(extent.offset);
      const auto end = static_cast<off_t>(extent.offset + extent.bytes);
      const bool touches = offset < end && offset + static_cast<off_t>(bytes) > begin;
      if (const int error = touches ? at() : 0; error != 0) {
        errno = error;
        return -1;
      }
      return pread(fd, buffer, bytes, offset);
    };
    input.make_queue = [pool](const std::vector<const File*>& files, const ReadQueueOptions&) {
      return PoolQueue::Make(files, pool);
    };
    return EngineCore::Open(std::move(input));
  }
  struct Answer {
    Status status;
    std::vector<float> logits;
    uint32_t length = 0;
  };
  static Answer Ask(EngineCore* core, uint32_t rows) {
    Answer a;
    std::unique_ptr<Sequence> sequence = core->NewSequence();
    std::vector<TokenId> ids(rows);
    for (uint32_t i = 0; i < rows; ++i) ids[i] = static_cast<TokenId>((i * 37 + 5) % 640);
    a.logits.resize(core->config().vocab);
    StepLoop::Request request;
    request.sequence = sequence.get();
    request.ids = ids;
    request.logits = a.logits;
    a.status = core->Step(request);
    a.length = sequence->length();
    core->Return(std::move(sequence));
    return a;
  }
  Answer Want(uint32_t rows) {
    const auto core = Open(Query(0), [] { return 0; });
    EXPECT_TRUE(core.ok()) << core.status().ToString();
    return Ask(core->get(), rows);
  }
  // A byte in the middle, so that no neighbour's read touches it.
  static Extent Middle(const MatrixSpec& m) {
    return {m.extent.file, m.extent.offset + m.extent.bytes / 2, 1};
  }
  Extent Query(uint32_t layer) const { return Middle(*map_.layers[layer].Get(MatrixRole::kQ)); }

  const testing::TempFolder folder_;
  std::string path_;
  ModelMap map_;
};

// The last layer's reads hang until the engine is open and has begun to work.
TEST_F(LatePinned, OpeningDoesNotWaitForThem) {
  for (uint32_t rows : {1u, 20u}) {
    const Answer want = Want(rows);
    std::atomic<bool> go = false;
    std::atomic<int> held = 0;
    const auto core = Open(Query(2), [&] {
      ++held;
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return 0;
    });
    ASSERT_TRUE(core.ok()) << core.status().ToString();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      go = true;
    });
    const Answer got = Ask(core->get(), rows);
    later.join();
    ASSERT_TRUE(got.status.ok()) << got.status.ToString();
    EXPECT_GT(held, 0);
    EXPECT_TRUE(got.logits == want.logits) << rows << " rows";
  }
}

TEST_F(LatePinned, AReadThatFailsEndsTheRequestAndSaysWhere) {
  const Answer want = Want(20);
  const auto tries = {std::pair(Query(1), "layer 1, "),
                      std::pair(Middle(map_.head), "output head, ")};
  for (const auto& [extent, name] : tries) {
    std::atomic<bool> broken = true;
    const auto core = Open(extent, [&] { return broken ? EIO : 0; });
    ASSERT_TRUE(core.ok()) << core.status().ToString();
    for (int turn = 0; turn < 2; ++turn) {
      const Answer lost = Ask(core->get(), 20);
      const std::string text = lost.status.ToString();
      EXPECT_EQ(lost.status.code(), Code::kIo) << text;
      for (const std::string& part :
           {std::string(name), path_, std::string("Input/output error"), std::string("offset ")})
        EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
      EXPECT_EQ(lost.length, 0u);
    }
    broken = false;
    const Answer healed = Ask(core->get(), 20);
    ASSERT_TRUE(healed.status.ok()) << healed.status.ToString();
    EXPECT_TRUE(healed.logits == want.logits);
  }
}

TEST_F(LatePinned, AnEngineThatIsNeverUsedCloses) {
  const auto core = Open(Query(0), [] { return 0; });
  EXPECT_TRUE(core.ok());
}

TEST_F(LatePinned, AFileCutShortIsRefusedAtOnce) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 40000);
  const auto engine = Engine::Open(path_, Options());
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kBadModel) << engine.status().ToString();
}

}  // namespace
}  // namespace sluice
