// The ring of streamed layers: each is read once per pass, in order, and the first ones of the next
// pass while this one ends.
#include "runtime/weight_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/engine_core.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

// Notes the layer of each read of a layer's matrices, in the order of submission.
class LoggingQueue : public ReadQueue {
 public:
  LoggingQueue(std::unique_ptr<ReadQueue> inner, const std::vector<Extent>* layers,
               std::vector<uint32_t>* log)
      : inner_(std::move(inner)), layers_(layers), log_(log) {}
  const char* name() const override { return inner_->name(); }
  uint32_t alignment() const override { return inner_->alignment(); }
  int depth() const override { return inner_->depth(); }
  int outstanding() const override { return inner_->outstanding(); }
  uint64_t bytes_read() const override { return inner_->bytes_read(); }
  void Submit(ReadRequest* request) override {
    for (uint32_t i = 0; i < layers_->size(); ++i) {
      const Extent& e = (*layers_)[i];
      const bool begins =
          e.offset >= request->offset && e.offset < request->offset + request->length;
      if (begins && request->priority == ReadPriority::kAhead) log_->push_back(i);
    }
    inner_->Submit(request);
  }
  int Poll() override { return inner_->Poll(); }
  Status Wait(ReadRequest* request) override { return inner_->Wait(request); }
  bool Cancel(ReadRequest* request) override { return inner_->Cancel(request); }

 private:
  const std::unique_ptr<ReadQueue> inner_;
  const std::vector<Extent>* layers_;
  std::vector<uint32_t>* log_;
};

class WeightStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ForgeOptions o = testing::Tiny("qwen3-30b-a3b");
    o.overrides.layers = 9;
    o.overrides.experts = 2;
    o.overrides.used = 1;
    o.overrides.hidden = 1024;
    o.overrides.heads = 16;
    path_ = folder_ / "model.gguf";
    ASSERT_TRUE(Forge(o, path_).ok());
    Result<ModelSource> source = OpenModelSource(path_, true);
    ASSERT_TRUE(source.ok());
    const Result<ModelMap> map = BindSource(&*source);
    ASSERT_TRUE(map.ok());
    for (const LayerMap& layer : map->layers) layers_.push_back(layer.Get(MatrixRole::kQ)->extent);
  }
  Result<CoreInput> Input(uint64_t budget) {
    CoreInput input;
    SLUICE_ASSIGN(input.source, OpenModelSource(path_, true));
    input.options.need_text = false;
    input.options.threads = 2;
    input.options.context = 64;
    input.options.budget_bytes = budget;
    input.peak_before_bytes = UINT64_MAX;  // what other tests took is not this one's
    input.make_queue = [this](const std::vector<const File*>& files,
                              const ReadQueueOptions& o) -> Result<std::unique_ptr<ReadQueue>> {
      SLUICE_ASSIGN(std::unique_ptr<ReadQueue> inner, MakeReadQueue(files, o));
      return std::unique_ptr<ReadQueue>(
          std::make_unique<LoggingQueue>(std::move(inner), &layers_, &log_));
    };
    return input;
  }
  std::unique_ptr<EngineCore> Open(uint64_t above_floor) {
    Result<CoreInput> input = Input(uint64_t{8} << 30);
    const Result<Plan> plan = EngineCore::PlanOnly(std::move(*input));
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    input = Input(plan->floor_bytes + above_floor);
    Result<std::unique_ptr<EngineCore>> core = EngineCore::Open(std::move(*input));
    EXPECT_TRUE(core.ok()) << core.status().ToString();
    return core.ok() ? std::move(*core) : nullptr;
  }
  static void Step(EngineCore* core, Sequence* sequence, std::vector<TokenId> ids) {
    StepLoop::Request request;
    request.sequence = sequence;
    request.ids = ids;
    const Status status = core->Step(request);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  const testing::TempFolder folder_;
  std::string path_;
  std::vector<Extent> layers_;
  std::vector<uint32_t> log_;
};

TEST_F(WeightStreamTest, TheFirstLayersOfTheNextTokenAreReadAheadWhileThisOneEnds) {
  for (uint64_t above : {3, 8, 14}) {
    log_.clear();
    const auto core = Open(above << 20);
    ASSERT_NE(core, nullptr);
    const Plan& plan = core->plan();
    ASSERT_GT(plan.layers_streamed, plan.read_ahead + 1) << above;
    std::unique_ptr<Sequence> sequence = core->NewSequence();
    Step(core.get(), sequence.get(), {1, 2, 3});
    log_.clear();
    Step(core.get(), sequence.get(), {4});
    const std::vector<uint32_t> second = std::exchange(log_, {});
    Step(core.get(), sequence.get(), {5});
    const std::vector<uint32_t> third = std::exchange(log_, {});
    core->Return(std::move(sequence));

    // Every pass reads each streamed layer once, and begins where the one before left off.
    EXPECT_EQ(second.size(), plan.layers_streamed);
    EXPECT_TRUE(second == third) << above;
    std::vector<uint32_t> streamed = second;
    std::sort(streamed.begin(), streamed.end());
    EXPECT_EQ(std::unique(streamed.begin(), streamed.end()), streamed.end());
    const uint32_t ring = plan.read_ahead + 1;
    std::rotate(streamed.begin(), streamed.begin() + ring, streamed.end());
    EXPECT_TRUE(second == streamed)
        << "the last reads of a pass are not the first " << ring << " streamed layers";
  }
}

}  // namespace
}  // namespace sluice
