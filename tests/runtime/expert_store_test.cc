// The expert store over queues that are slow, out of order, or broken: logits equal those of the
// resident run bit for bit, or the request fails saying where, and the next one is right again.
//
// Cases E01, E03 and E06 of the bug collection. Runs under ThreadSanitizer: the lanes of the pool
// write slots while the thread pool computes from others.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>

#include "io/pool_queue.h"
#include "io/testing/faulty_read.h"
#include "io/testing/memory_queue.h"
#include "runtime/engine_core.h"
#include "tests/golden/golden_data.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using testing::FaultPlan;
using testing::MakeFaultyQueue;
using testing::SlowQueue;
using Files = std::vector<const File*>;
using QueueMaker = decltype(CoreInput::make_queue);
using FailFn = std::function<bool(const ReadRequest&)>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kSizeStep = 8;  // a sanitizer makes each run twenty times as long
#else
constexpr uint32_t kSizeStep = 1;
#endif

// Spoils a buffer when its read is handed over (a backend may begin at once), so that a slot which
// is filled while its old expert is in use shows in the logits; counts reads into a place that
// another read still fills; fails the reads that `fail` names.
class GuardQueue : public ReadQueue {
 public:
  GuardQueue(std::unique_ptr<ReadQueue> inner, FailFn fail, std::atomic<int>* overlaps)
      : inner_(std::move(inner)), fail_(std::move(fail)), overlaps_(overlaps) {}

  const char* name() const override { return inner_->name(); }
  uint32_t alignment() const override { return inner_->alignment(); }
  int depth() const override { return inner_->depth(); }
  int outstanding() const override {
    return inner_->outstanding() + static_cast<int>(failing_.size());
  }
  uint64_t bytes_read() const override { return inner_->bytes_read(); }

  void Submit(ReadRequest* request) override {
    std::erase(under_way_, request);
    Forget();
    for (const ReadRequest* other : under_way_) {
      if (other->buffer < request->buffer + request->length &&
          request->buffer < other->buffer + other->length)
        ++*overlaps_;
    }
    std::memset(request->buffer, 0xFF, request->length);
    under_way_.push_back(request);
    if (!fail_ || !fail_(*request)) return inner_->Submit(request);
    request->done = false;
    request->status = {};
    failing_.push_back(request);
  }
  int Poll() override {
    int n = inner_->Poll();
    for (; !failing_.empty(); ++n) Fail(failing_.back());
    Forget();
    return n;
  }
  Status Wait(ReadRequest* request) override {
    if (std::find(failing_.begin(), failing_.end(), request) != failing_.end()) {
      Fail(request);
    } else if (!request->done) {
      (void)inner_->Wait(request);
    }
    Forget();
    return request->status;
  }
  bool Cancel(ReadRequest* request) override {
    const bool gone = std::erase(failing_, request) > 0 || inner_->Cancel(request);
    if (gone) std::erase(under_way_, request);
    return gone;
  }

 private:
  void Fail(ReadRequest* request) {
    std::erase(failing_, request);
    request->status = Status(Code::kIo, "planned fault");
    request->done = true;
  }
  void Forget() {
    std::erase_if(under_way_, [](const ReadRequest* r) { return r->done; });
  }

  const std::unique_ptr<ReadQueue> inner_;
  const FailFn fail_;
  std::atomic<int>* const overlaps_;
  std::vector<ReadRequest*> under_way_, failing_;
};

// Faults begin when `armed` is set: loading is not their subject.
struct Faults {
  std::atomic<int> overlaps = 0;
  std::atomic<bool> armed = false;
  FailFn fail;

  enum class Kind { kSlow, kLanes };
  QueueMaker Maker(Kind kind, uint64_t seed = 1) {
    return [this, kind, seed](const Files& files, const ReadQueueOptions&) {
      return Make(files, kind, seed);
    };
  }

 private:
  Result<std::unique_ptr<ReadQueue>> Make(const Files& files, Kind kind, uint64_t seed) {
    FaultPlan plan;
    if (kind == Kind::kLanes) plan.sleep_us = 100;
    SLUICE_ASSIGN(std::unique_ptr<ReadQueue> queue, MakeFaultyQueue(files, plan, 4));
    if (kind == Kind::kSlow) {
      queue = std::make_unique<SlowQueue>(std::move(queue), seed, /*delay_ns=*/20000, /*depth=*/6);
    }
    FailFn armed_fail = [this](const ReadRequest& r) { return armed && fail && fail(r); };
    return std::unique_ptr<ReadQueue>(
        std::make_unique<GuardQueue>(std::move(queue), std::move(armed_fail), &overlaps));
  }
};

EngineOptions Few(int64_t slots, int lookahead, double noise = 0) {
  EngineOptions o;
  o.need_text = false;
  o.threads = 2;
  o.context = 256;
  o.budget_bytes = uint64_t{8} << 30;  // the number of slots is what is varied here
  o.expert_slots = slots;
  o.lookahead = lookahead;
  o.lookahead_noise = noise;
  return o;
}

std::unique_ptr<EngineCore> OpenCore(const std::string& path, const EngineOptions& options,
                                     QueueMaker make_queue = {}) {
  CoreInput input;
  Result<ModelSource> source = OpenModelSource(path, /*need_weights=*/true);
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  if (!source.ok()) return nullptr;
  input.source = std::move(*source);
  input.options = options;
  input.make_queue = std::move(make_queue);
  Result<std::unique_ptr<EngineCore>> core = EngineCore::Open(std::move(input));
  EXPECT_TRUE(core.ok()) << core.status().ToString();
  return core.ok() ? std::move(*core) : nullptr;
}

// One request after the other on a timeline of its own.
class Talk {
 public:
  explicit Talk(EngineCore* core) : core_(core), sequence_(core->NewSequence()) {
    logits_.resize(core->config().vocab);
  }
  ~Talk() { core_->Return(std::move(sequence_)); }

  Status Append(const std::vector<TokenId>& ids) {
    StepLoop::Request request;
    request.sequence = sequence_.get();
    request.ids = ids;
    request.logits = logits_;
    return core_->Step(request);
  }
  TokenId Best() const {
    return static_cast<TokenId>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }
  const std::vector<float>& logits() const { return logits_; }
  uint32_t length() const { return sequence_->length(); }

 private:
  EngineCore* core_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<float> logits_;
};

// A prompt in chunks of every kind the store tells apart: many rows, few rows, then single tokens.
std::vector<std::vector<TokenId>> Script(uint32_t vocab, uint32_t prompt, uint32_t decode) {
  std::vector<std::vector<TokenId>> steps;
  uint32_t at = 0;
  const auto step = [&](uint32_t n) {
    std::vector<TokenId> ids(n);
    for (TokenId& id : ids) id = static_cast<TokenId>((at++ * 7919u + 13u) % vocab);
    steps.push_back(std::move(ids));
  };
  step(prompt);
  for (uint32_t i = 0; i < decode; ++i) step(i % 6 == 3 ? 2 + i % 3 : 1);
  return steps;
}

using Rows = std::vector<std::vector<float>>;

// The last row of each step; steps that fail are asked again, at most `tries` times.
Rows RowsOf(EngineCore* core, uint32_t prompt, uint32_t decode, int tries = 1,
            int* failures = nullptr) {
  Rows rows;
  Talk talk(core);
  for (const std::vector<TokenId>& ids : Script(core->config().vocab, prompt, decode)) {
    const uint32_t before = talk.length();
    Status status;
    for (int i = 0; i < tries; ++i) {
      status = talk.Append(ids);
      if (status.ok()) break;
      EXPECT_EQ(talk.length(), before);
      if (failures != nullptr) ++*failures;
    }
    EXPECT_TRUE(status.ok()) << status.ToString();
    rows.push_back(talk.logits());
  }
  return rows;
}

class ExpertStoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Forged shapes of three layouts in files, and the two that are converted on arrival.
  static std::string PathOf(const std::string& name) {
    static const testing::TempFolder folder;
    const std::filesystem::path golden = golden::SharedDir() / "golden" / name;
    if (name.starts_with("gpt_oss") || name.starts_with("gguf")) {
      return std::filesystem::exists(golden) ? golden.string() : "";
    }
    const std::string path = folder / (name + ".gguf");
    if (!std::filesystem::exists(path)) {
      const Result<ForgeReport> report = Forge(testing::Tiny(name), path);
      EXPECT_TRUE(report.ok()) << report.status().ToString();
    }
    return path;
  }

  void SetUp() override {
    path_ = PathOf(GetParam());
    if (path_.empty()) GTEST_SKIP() << "SKIP: no golden data for " << GetParam();
  }
  Rows Resident(uint32_t prompt, uint32_t decode) {
    const std::unique_ptr<EngineCore> core = OpenCore(path_, Few(-1, 0));
    if (core == nullptr) return {};
    total_ = core->plan().experts_total;
    EXPECT_EQ(core->plan().expert_slots, total_);
    return RowsOf(core.get(), prompt, decode);
  }

  std::string path_;
  uint32_t total_ = 0;  // experts; the golden models have too few to miss often
};

// E01: every number of slots, completions out of order, guesses partly wrong.
TEST_P(ExpertStoreTest, EveryCacheSizeOverASlowQueue) {
  const Rows want = Resident(16, 6);
  for (uint32_t slots = 0; slots <= total_; slots += slots < 8 ? 1 : kSizeStep) {
    Faults faults;
    const auto core = OpenCore(path_, Few(slots, static_cast<int>(slots % 3), 0.3),
                               faults.Maker(Faults::Kind::kSlow, slots));
    ASSERT_NE(core, nullptr);
    EXPECT_TRUE(RowsOf(core.get(), 16, 6) == want) << slots << " slots";
    EXPECT_EQ(faults.overlaps, 0) << slots << " slots";
  }
}

// E03: more misses than slots while every slot is in flight or in use, on real threads.
TEST_P(ExpertStoreTest, MoreMissesThanSlotsWhileReadsAreUnderWay) {
  const Rows want = Resident(40, 24);
  for (int64_t slots : {1, 2, 3, 4, 7, 9}) {
    for (int lookahead : {1, 2}) {
      const double noise = (slots + lookahead) % 2 == 0 ? 0.5 : 1.0;
      Faults faults;
      const auto core =
          OpenCore(path_, Few(slots, lookahead, noise), faults.Maker(Faults::Kind::kLanes));
      ASSERT_NE(core, nullptr);
      EXPECT_TRUE(RowsOf(core.get(), 40, 24) == want)
          << slots << " slots, look-ahead " << lookahead << ", noise " << noise;
      EXPECT_EQ(faults.overlaps, 0);
      const Stats stats = core->stats();
      if (slots > core->config().moe.used && total_ >= 48) {  // or there is no room to guess into
        EXPECT_GT(stats.lookahead_wasted_bytes, 0u) << "no guess was in the way of anything";
      }
      if (slots < total_) EXPECT_LT(stats.hit_rate, 1);
    }
  }
}

// A failed read-ahead is nobody's request: it is forgotten, or read again when it is wanted.
TEST_P(ExpertStoreTest, FailedReadAheadAloneFailsNothing) {
  const Rows want = Resident(12, 30);
  for (const Faults::Kind kind : {Faults::Kind::kSlow, Faults::Kind::kLanes}) {
    Faults faults;
    int failed = 0;
    faults.fail = [&](const ReadRequest& r) {
      return r.priority == ReadPriority::kAhead && ++failed % 2 == 1;
    };
    const auto core = OpenCore(path_, Few(9, 2, 0.2), faults.Maker(kind));
    ASSERT_NE(core, nullptr);
    faults.armed = true;
    EXPECT_TRUE(RowsOf(core.get(), 12, 30) == want);
    if (total_ >= 48) EXPECT_GT(failed, 5);  // a tiny model leaves nothing to guess
    EXPECT_EQ(faults.overlaps, 0);
  }
}

// Reads fail at random, in demand and ahead: a step fails whole or is right, and the store is never
// left with a slot that nobody fills or frees.
TEST_P(ExpertStoreTest, AStormOfFailuresLosesAndInventsNothing) {
  const Rows want = Resident(16, 24);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    Faults faults;
    uint32_t state = seed * 2654435761u;
    faults.fail = [&](const ReadRequest&) {
      state = state * 1664525u + 1013904223u;
      return (state >> 16) % 128 == 0;
    };
    const auto core =
        OpenCore(path_, Few(2 + 4 * seed, static_cast<int>(seed % 3), 0.3),
                 faults.Maker(seed % 2 == 0 ? Faults::Kind::kSlow : Faults::Kind::kLanes, seed));
    ASSERT_NE(core, nullptr);
    faults.armed = true;
    int failures = 0;
    EXPECT_TRUE(RowsOf(core.get(), 16, 24, /*tries=*/400, &failures) == want) << "seed " << seed;
    if (total_ >= 48) EXPECT_GT(failures, 0) << "seed " << seed;
    EXPECT_EQ(faults.overlaps, 0);
    faults.armed = false;
    EXPECT_TRUE(RowsOf(core.get(), 16, 24) == want) << "seed " << seed;
  }
}

// Cancelled in the middle, with reads ahead under way: the next request is right.
TEST_P(ExpertStoreTest, ACancelledStepLeavesTheStoreWhole) {
  const Rows want = Resident(12, 12);
  Faults faults;
  const auto core = OpenCore(path_, Few(5, 2, 0.5), faults.Maker(Faults::Kind::kLanes));
  ASSERT_NE(core, nullptr);
  for (int turn = 0; turn < 4; ++turn) {
    std::unique_ptr<Sequence> sequence = core->NewSequence();
    std::vector<float> logits(core->config().vocab);
    std::atomic<bool> cancel = false;
    int layers = 0;
    faults.fail = [&](const ReadRequest&) {  // called for each read: a place in mid-layer
      if (++layers == 5 + 3 * turn) cancel = true;
      return false;
    };
    faults.armed = true;
    StepLoop::Request request;
    request.sequence = sequence.get();
    request.logits = logits;
    request.cancel = &cancel;
    Status status;
    for (TokenId id = 1; id < 50 && status.ok(); ++id) {
      request.ids = std::span<const TokenId>(&id, 1);
      status = core->Step(request);
    }
    if (total_ >= 48) EXPECT_EQ(status.what(), "cancelled");
    core->Return(std::move(sequence));
    faults.armed = false;
    EXPECT_TRUE(RowsOf(core.get(), 12, 12) == want);
    EXPECT_EQ(faults.overlaps, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExpertStoreTest,
                         ::testing::Values("qwen3-30b-a3b", "qwen3.6-35b-a3b", "gpt_oss",
                                           "gpt_oss_l7"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) {
                             if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

// A small file whose up projections of layer 2 lie on a bad part of the disk while `broken` is set.
class ExpertStoreFault : public ::testing::Test {
 protected:
  static constexpr uint32_t kLayer = 2, kExperts = 16;

  void SetUp() override {
    path_ = folder_ / "model.gguf";
    ASSERT_TRUE(Forge(testing::Tiny("qwen3-30b-a3b"), path_).ok());
    Result<ModelSource> source = OpenModelSource(path_, true);
    ASSERT_TRUE(source.ok());
    const Result<ModelMap> map = BindSource(&*source);
    ASSERT_TRUE(map.ok());
    part_ = map->layers[kLayer].experts->part[1];
  }
  // Reads that touch experts [first, last] of part_ fail with EIO.
  std::unique_ptr<EngineCore> Open(int64_t slots, uint32_t first, uint32_t last) {
    const auto begin = static_cast<off_t>(part_.At(first).offset);
    const auto end = static_cast<off_t>(part_.At(last).offset + part_.At(last).bytes);
    PoolQueueOptions pool;
    pool.direct = false;
    pool.read = [this, begin, end](int fd, void* buffer, size_t bytes, off_t offset) -> ssize_t {
      if (broken_ && offset < end && offset + static_cast<off_t>(bytes) > begin) {
        errno = EIO;
        return -1;
      }
      return pread(fd, buffer, bytes, offset);
    };
    return OpenCore(path_, Few(slots, 0), [pool](const Files& files, const ReadQueueOptions&) {
      return PoolQueue::Make(files, pool);
    });
  }
  // The expert that the error names, after checking all else it has to say.
  uint32_t NamedExpert(const Status& status) const {
    EXPECT_EQ(status.code(), Code::kIo) << status.ToString();
    const std::string text = status.ToString();
    unsigned layer = 0, expert = kExperts;
    uint64_t offset = 0;
    const size_t at = text.find("layer "), where = text.find("offset ");
    if (at == std::string::npos || where == std::string::npos ||
        std::sscanf(text.c_str() + at, "layer %u, expert %u", &layer, &expert) != 2 ||
        std::sscanf(text.c_str() + where, "offset %lu", &offset) != 1 || expert >= kExperts) {
      ADD_FAILURE() << text;
      return kExperts;
    }
    EXPECT_EQ(layer, kLayer);
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find("Input/output error"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    const Extent named = part_.At(expert);
    EXPECT_LT(offset, named.offset + named.bytes) << text;
    EXPECT_GE(offset + 4096, named.offset) << text;  // reads begin on a block
    return expert;
  }

  testing::TempFolder folder_;
  std::string path_;
  ExpertPart part_;
  std::atomic<bool> broken_ = false;
};

// The error names file, layer, expert and offset; when the disk is well again so is the next
// request.
TEST_F(ExpertStoreFault, ADemandReadThatFailsSaysWhere) {
  const Rows want = RowsOf(OpenCore(path_, Few(-1, 0)).get(), 10, 6);
  const auto core = Open(/*slots=*/2, 0, kExperts - 1);
  ASSERT_NE(core, nullptr);
  EXPECT_TRUE(RowsOf(core.get(), 10, 6) == want);
  broken_ = true;
  for (uint32_t rows : {1u, 3u, 40u}) {
    Talk talk(core.get());
    std::vector<TokenId> ids(rows, 0);
    for (uint32_t i = 0; i < rows; ++i) ids[i] = static_cast<TokenId>(600 - i);
    EXPECT_LT(NamedExpert(talk.Append(ids)), kExperts) << rows << " rows";
    EXPECT_EQ(talk.length(), 0u);
  }
  broken_ = false;
  EXPECT_TRUE(RowsOf(core.get(), 10, 6) == want);
}

// One bad expert ends the requests that need it and no other; none is answered without it.
TEST_F(ExpertStoreFault, OnlyRequestsThatNeedTheBadExpertFail) {
  constexpr uint32_t kBad = 5;
  const auto well = OpenCore(path_, Few(-1, 0));
  const auto core = Open(/*slots=*/4, kBad, kBad);
  ASSERT_NE(core, nullptr);
  broken_ = true;
  int failed = 0, answered = 0;
  for (TokenId id = 0; id < 48; ++id) {
    Talk talk(core.get()), want(well.get());
    ASSERT_TRUE(want.Append({id}).ok());
    const Status status = talk.Append({id});
    if (status.ok()) {
      ++answered;
      EXPECT_TRUE(talk.logits() == want.logits()) << "token " << id;
    } else {
      ++failed;
      const uint32_t named = NamedExpert(status);
      // A read begins on a block, so it may touch the end of the expert before.
      EXPECT_TRUE(named == kBad || named + 1 == kBad || named == kBad + 1) << named;
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace sluice
