#include "sluice/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <new>

#include "api/kernel_fixture.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/thread_pool.h"
#include "kernels/peak.h"
#include "model/parts.h"
#include "runtime/int8_work.h"
#include "sluice/sampling.h"

namespace sluice {
namespace {

constexpr uint32_t kTokens = 128, kRowsPerThread = 512;  // of the prompt products
constexpr uint32_t kPositions = 4096, kGroup = 4;        // of attention
constexpr uint32_t kHidden = 4096;                       // of what works on one activation row
constexpr uint32_t kHeadDim = 128;
constexpr double kShortestRun = 200e-6;  // below, the clock and one interrupt would show
constexpr int kOtherMeasurements = 36;
// The ceilings get more time: everything is measured against them.
constexpr double kPeakShare = 4;

class Bench {
 public:
  Bench(const Ops& ops, int threads, double seconds, KernelBench* report)
      : ops_(ops), pool_(threads), report_(report), weights_(FiniteBytes(WorkingSetBytes())) {
    types_ = MeasuredTypes();
    const double measurements = 2.0 * static_cast<double>(types_.size()) + kOtherMeasurements;
    seconds_each_ = seconds / measurements;
  }

  void Run() {
    Peaks();
    for (const WeightType type : types_) OneToken(type);
    for (const WeightType type : types_) ManyTokens(type);
    for (const KvFormat format : {KvFormat::kF16, KvFormat::kQ8, KvFormat::kK8V4})
      Attention(format);
    Recurrent();
    Rows();
    for (const uint32_t vocab : {151936u, 248320u}) Sampling(vocab);
  }

 private:
  // Seconds of the quickest of the runs that fit the time of one measurement.
  double Best(const std::function<void()>& run) const { return BestOf(1, run); }
  double BestOf(double share, const std::function<void()>& run) const {
    const double begin = NowSeconds(), limit = share * seconds_each_;
    double best = 1e30;
    for (int i = 0; i < 3 || NowSeconds() - begin < limit; ++i) {
      const double start = NowSeconds();
      run();
      best = std::min(best, NowSeconds() - start);
      if (NowSeconds() - begin > 2 * limit) break;  // a slow set: what there is must do
    }
    return best;
  }
  // The same for calls that are too short for the clock.
  double BestOfShort(const std::function<void()>& call) const {
    uint64_t calls = 1;
    const auto many = [&] {
      for (uint64_t i = 0; i < calls; ++i) call();
    };
    while (true) {
      const double start = NowSeconds();
      many();
      if (NowSeconds() - start >= kShortestRun) break;
      calls *= 2;
    }
    return Best(many) / static_cast<double>(calls);
  }

  void Add(std::string kernel, std::string variant, double value, const char* unit, double peak) {
    report_->rates.push_back({std::move(kernel), std::move(variant), value, unit, peak});
  }

  void Peaks() {
    const PeakLoops loops = FindPeakLoops(ops_.isa);
    report_->memory_gb_s = Reads(loops.read, &pool_);
    ThreadPool one(1);
    report_->memory_one_gb_s = Reads(loops.read, &one);
    const double seconds = kPeakShare * seconds_each_;
    report_->int8_gop_s = MeasureOperations(loops.int8, &pool_, seconds) * 1e-9;
    report_->f32_gop_s = MeasureOperations(loops.f32, &pool_, seconds) * 1e-9;
  }

  // Pieces as long as the products' parts: each is walked as eight streams.
  double Reads(void (*read)(const uint8_t*, uint64_t), ThreadPool* pool) {
    if (read == nullptr) return 0;
    const int pieces = 8 * pool->threads();
    const uint64_t bytes = weights_.size() / static_cast<uint64_t>(pieces) / 512 * 512;
    const double seconds = BestOf(kPeakShare, [&] {
      pool->Run(pieces, [&](int i) { read(&weights_[static_cast<uint64_t>(i) * bytes], bytes); });
    });
    return static_cast<double>(bytes) * pieces / seconds * 1e-9;
  }

  double BestMatmul(const MatmulArgs& args, uint32_t rows) {
    const PartJob job{rows, args.row_bytes};
    const PartList parts({&job, 1}, pool_.threads(), 8, 8192);
    return Best([&] {
      pool_.Run(static_cast<int>(parts.size()), [&](int i) {
        const Part& part = parts[static_cast<uint32_t>(i)];
        ops_.matmul(args, part.begin, part.end);
      });
    });
  }

  void OneToken(WeightType type) {
    FixExponents(type, &weights_);
    const uint64_t row_bytes = RowBytes(type, MatmulFixture::kCols).value();
    const auto rows = static_cast<uint32_t>(weights_.size() / row_bytes / 8 * 8);
    const MatmulFixture fixture(ops_, type, 1, rows, weights_.data());
    const double seconds = BestMatmul(fixture.args, rows);
    Add("matmul, 1 token", InfoOf(type).name,
        static_cast<double>(rows * row_bytes) / seconds * 1e-9, "GB/s", report_->memory_gb_s);
  }

  void ManyTokens(WeightType type) {
    FixExponents(type, &weights_);
    const uint32_t rows = kRowsPerThread * static_cast<uint32_t>(pool_.threads());
    const MatmulFixture fixture(ops_, type, kTokens, rows, weights_.data());
    const double operations = 2.0 * rows * MatmulFixture::kCols * kTokens;
    const bool is_float = ActFormatOf(type) == ActFormat::kF32;
    Add(fmt::format("matmul, {} tokens", kTokens), InfoOf(type).name,
        operations / BestMatmul(fixture.args, rows) * 1e-9, "GOP/s",
        is_float ? report_->f32_gop_s : report_->int8_gop_s);
  }

  void Attention(KvFormat format) {
    const uint64_t head_bytes =
        kPositions * (KvRowBytes(format, false, kHeadDim) + KvRowBytes(format, true, kHeadDim));
    const uint64_t heads = std::max<uint64_t>(8, weights_.size() / head_bytes);
    AttentionFixture fixture(ops_, format, kGroup, kPositions, static_cast<uint32_t>(heads));
    const double seconds = Best([&] {
      pool_.Run(static_cast<int>(fixture.heads),
                [&](int head) { ops_.attention(fixture.Args(static_cast<uint32_t>(head))); });
    });
    const char* name = format == KvFormat::kF16 ? "f16" : format == KvFormat::kQ8 ? "q8" : "k8v4";
    Add("attention, 4 heads per KV head", name,
        static_cast<double>(fixture.bytes()) / seconds * 1e-9, "GB/s", report_->memory_gb_s);
  }

  void Recurrent() {
    const uint64_t state_floats = kHeadDim * kHeadDim, heads = weights_.size() / (4 * state_floats);
    std::vector<float> state(heads * state_floats), out(heads * kHeadDim);
    std::vector<float> q = NormalFloats(kHeadDim, 5), k = q, v = NormalFloats(kHeadDim, 6);
    for (float& x : k) x *= 0.08f;  // about unit length
    const double seconds = Best([&] {
      pool_.Run(static_cast<int>(heads), [&](int head) {
        const auto h = static_cast<uint64_t>(head);
        ops_.delta_step({.state = &state[h * state_floats],
                         .q = q.data(),
                         .k = k.data(),
                         .v = v.data(),
                         .beta = 0.5f,
                         .decay = 0.9f,
                         .kd = kHeadDim,
                         .vd = kHeadDim,
                         .out = &out[h * kHeadDim]});
      });
    });
    Add("delta_step, read and written", "128 x 128",
        static_cast<double>(8 * state.size()) / seconds * 1e-9, "GB/s", report_->memory_gb_s);
    constexpr uint32_t kChannels = 8192, kKernel = 4;
    const std::vector<float> w = NormalFloats(kChannels * kKernel, 7),
                             x = NormalFloats(kChannels, 8);
    std::vector<float> past(kChannels * (kKernel - 1)), y(kChannels);
    AddRow("conv_step", "8192 x 4", 4.0 * kChannels * (kKernel + 2 * (kKernel - 1) + 2), [&] {
      ops_.conv_step(w.data(), kKernel, x.data(), past.data(), 0, kChannels, y.data());
    });
  }

  // One thread, data in its caches: bytes read and written, beside what memory gives one thread.
  void AddRow(const char* kernel, const char* variant, double bytes,
              const std::function<void()>& call) {
    Add(kernel, variant, bytes / BestOfShort(call) * 1e-9, "GB/s", report_->memory_one_gb_s);
  }

  void Rows() {
    const uint32_t n = kHidden, heads = kHidden / kHeadDim;
    const std::vector<float> x = NormalFloats(n, 9), w = NormalFloats(n, 10);
    std::vector<float> y(n), angle(kHeadDim / 2, 0.6f), other(kHeadDim / 2, 0.8f);
    std::vector<int8_t> q(n);
    std::vector<float> scale(n / 32);
    std::vector<int16_t> sums(n / 16);
    std::vector<uint8_t> kv(KvRowBytes(KvFormat::kF32, false, n));
    AddRow("rms_norm", "4096", 12.0 * n,
           [&] { ops_.rms_norm(x.data(), w.data(), 1e-6f, n, y.data()); });
    AddRow("quantise", "blocks of 32", 5.0 * n + 6.0 * n / 32, [&] {
      ops_.quantize(ActFormat::kQ8x32, x.data(), n, q.data(), scale.data(), sums.data());
    });
    AddRow("quantise", "blocks of 256", 5.0 * n + 4.0 * n / 256 + 2.0 * n / 16, [&] {
      ops_.quantize(ActFormat::kQ8x256, x.data(), n, q.data(), scale.data(), sums.data());
    });
    y = x;
    for (const bool adjacent : {false, true}) {
      AddRow("rope", adjacent ? "32 heads, adjacent" : "32 heads, halves", 8.0 * n, [&] {
        ops_.rope(y.data(), heads, kHeadDim, kHeadDim, adjacent, angle.data(), other.data());
      });
    }
    AddRow("silu_mul", "4096", 12.0 * n, [&] { ops_.silu_mul(x.data(), w.data(), n, y.data()); });
    AddRow("gelu_tanh_mul", "4096", 12.0 * n,
           [&] { ops_.gelu_tanh_mul(x.data(), w.data(), n, y.data()); });
    y = x;
    AddRow("softmax", "4096", 8.0 * n, [&] { ops_.softmax(y.data(), n); });
    AddRow("kv_store", "f16", 6.0 * n,
           [&] { ops_.kv_store(KvFormat::kF16, false, x.data(), n, kv.data()); });
    AddRow("kv_store", "q8", 5.0 * n,
           [&] { ops_.kv_store(KvFormat::kQ8, false, x.data(), n, kv.data()); });
  }

  void Sampling(uint32_t vocab) {
    std::vector<float> logits = NormalFloats(vocab, 11);
    for (float& v : logits) v *= 3;
    for (const bool greedy : {true, false}) {
      SamplingOptions options;
      if (greedy) options.temperature = 0;
      Sampler sampler(options, vocab);
      const double seconds = BestOfShort([&] { (void)sampler.Sample(logits, {}); });
      Add("sampler", fmt::format("{}, {} tokens", greedy ? "greedy" : "top-k, top-p, min-p", vocab),
          seconds * 1e6, "us", 0);
    }
  }

  const Ops& ops_;
  ThreadPool pool_;
  KernelBench* const report_;
  std::vector<uint8_t> weights_;
  std::vector<WeightType> types_;
  double seconds_each_ = 0;
};

}  // namespace

Result<KernelBench> BenchKernels(const KernelBenchOptions& options) {
  const Ops* ops = GetOps(options.isa);
  if (ops == nullptr) {
    return Status(Code::kUsage,
                  fmt::format("instruction set '{}' is not available here", options.isa),
                  "SLUICE_ISA", fmt::format("use one of {}", fmt::join(AvailableIsas(), ", ")));
  }
  if (options.threads < 0 || options.threads > static_cast<int>(limits::kThreadsMax)) {
    return Status(Code::kUsage, fmt::format("threads {} is out of range", options.threads), "",
                  fmt::format("use 1 to {}", limits::kThreadsMax));
  }
  KernelBench report;
  report.isa = ops->isa;
  report.threads = options.threads > 0 ? options.threads : DefaultThreads();
  try {
    Bench(*ops, report.threads, options.seconds_max, &report).Run();
  } catch (const std::bad_alloc&) {
    return Status(Code::kFailed, "no memory for the weights to measure with", "bench --kernels");
  }
  return report;
}

}  // namespace sluice
