// The kernels other than matrix products, and the loops that give the machine's ceilings, on one
// thread. Matrix products: kernels_bench.cc. All of them in a table: `sluice bench --kernels`.
//
//   SLUICE_ISA=scalar leaves_bench --benchmark_filter=softmax
// Names: peak/KIND, attention/FORMAT/GROUP, then one per leaf; bytes are those read and written.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "api/kernel_fixture.h"
#include "kernels/peak.h"
#include "sluice/sampling.h"

namespace sluice {
namespace {

constexpr uint32_t kRow = 4096, kHeadDim = 128, kPositions = 4096;

const Ops& TheOps() {
  const char* isa = std::getenv("SLUICE_ISA");
  const Ops* ops = GetOps(isa == nullptr ? "" : isa);
  return ops == nullptr ? *GetOps() : *ops;
}

void Peak(benchmark::State& state, uint64_t (*loop)(uint64_t)) {
  uint64_t operations = 0;
  for (auto _ : state) operations += loop(1000);
  state.counters["GOP/s"] =
      benchmark::Counter(1e-9 * double(operations), benchmark::Counter::kIsRate);
}

void Attention(benchmark::State& state, KvFormat format) {
  AttentionFixture fixture(TheOps(), format, uint32_t(state.range(0)), kPositions, 1);
  const AttentionArgs args = fixture.Args(0);
  for (auto _ : state) TheOps().attention(args);
  state.SetBytesProcessed(int64_t(state.iterations() * fixture.bytes()));
}

void Leaf(const char* name, double bytes, std::function<void()> call) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) {
    for (auto _ : state) call();
    state.SetBytesProcessed(int64_t(double(state.iterations()) * bytes));
  });
}

struct Buffers {
  std::vector<float> a = NormalFloats(2 * kRow, 1), b = NormalFloats(2 * kRow, 2), y = a;
  std::vector<float> scale = std::vector<float>(kRow / 32);
  std::vector<int8_t> q = std::vector<int8_t>(kRow);
  std::vector<int16_t> sums = std::vector<int16_t>(kRow / 16);
  std::vector<uint8_t> kv = std::vector<uint8_t>(4 * kRow);
  std::vector<float> state = std::vector<float>(4 * kRow), conv = std::vector<float>(4 * kRow);
};

void RegisterLeaves(Buffers* m) {
  const Ops* ops = &TheOps();
  float *a = m->a.data(), *b = m->b.data(), *y = m->y.data();
  Leaf("rms_norm", 12 * kRow, [=] { ops->rms_norm(a, b, 1e-6f, kRow, y); });
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    Leaf(format == ActFormat::kQ8x32 ? "quantize/32" : "quantize/256", 5 * kRow,
         [=] { ops->quantize(format, a, kRow, m->q.data(), m->scale.data(), m->sums.data()); });
  }
  for (const bool adjacent : {false, true}) {
    Leaf(adjacent ? "rope/adjacent" : "rope/halves", 8 * kRow, [=] {
      ops->rope(y, kRow / kHeadDim, kHeadDim, kHeadDim, adjacent, m->scale.data(),
                m->scale.data() + kHeadDim / 2);
    });
  }
  Leaf("silu_mul", 12 * kRow, [=] { ops->silu_mul(a, b, kRow, y); });
  Leaf("gelu_tanh_mul", 12 * kRow, [=] { ops->gelu_tanh_mul(a, b, kRow, y); });
  Leaf("softmax", 8 * kRow, [=] { ops->softmax(y, kRow); });
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kQ8}) {
    Leaf(format == KvFormat::kF16 ? "kv_store/f16" : "kv_store/q8", 5 * kRow,
         [=] { ops->kv_store(format, false, a, kRow, m->kv.data()); });
  }
  Leaf("delta_step", 8 * kHeadDim * kHeadDim, [=] {
    ops->delta_step({.state = m->state.data(),
                     .q = a,
                     .k = m->scale.data(),
                     .v = b,
                     .beta = 0.5f,
                     .decay = 0.9f,
                     .kd = kHeadDim,
                     .vd = kHeadDim,
                     .out = y});
  });
  Leaf("conv_step", 4 * kRow * 12,
       [=] { ops->conv_step(m->conv.data(), 4, a, m->state.data(), 0, kRow, y); });
}

void Sampling(benchmark::State& state) {
  const auto vocab = uint32_t(state.range(0));
  const std::vector<float> logits = NormalFloats(vocab, 3);
  SamplingOptions options;
  if (state.range(1) != 0) options.temperature = 0;
  Sampler sampler(options, vocab);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.Sample(logits, {}).ok());
}

void Register() {
  const PeakLoops loops = FindPeakLoops(TheOps().isa);
  benchmark::RegisterBenchmark("peak/int8", Peak, loops.int8);
  benchmark::RegisterBenchmark("peak/f32", Peak, loops.f32);
  const std::pair<const char*, KvFormat> formats[] = {{"attention/f16", KvFormat::kF16},
                                                      {"attention/q8", KvFormat::kQ8},
                                                      {"attention/k8v4", KvFormat::kK8V4}};
  for (const auto& [name, format] : formats)
    benchmark::RegisterBenchmark(name, Attention, format)->Arg(1)->Arg(4)->Arg(8)->Arg(16);
  static Buffers buffers;
  RegisterLeaves(&buffers);
  benchmark::RegisterBenchmark("sampler", Sampling)
      ->ArgNames({"vocab", "greedy"})
      ->ArgsProduct({{151936, 248320}, {0, 1}});
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
