// Matrix kernels per weight type: GB/s of weights for one token (from a working set beyond the
// last-level cache) beside the machine's plain read rate, and GOP/s for prompts. Two operations per
// weight and token. The other leaves: leaves_bench.cc. All of them in a table: `sluice bench
// --kernels`.
//
//   kernels_bench --benchmark_filter=one/Q4_K
// Names: read/THREADS, one/TYPE/THREADS (one token), many/TYPE/TOKENS (one thread).
#include <benchmark/benchmark.h>

#include <ctime>
#include <string>

#include "api/kernel_fixture.h"
#include "base/cpu.h"
#include "base/thread_pool.h"
#include "kernels/peak.h"

namespace sluice {
namespace {

constexpr uint32_t kCols = MatmulFixture::kCols;

std::vector<uint8_t>& Weights() {
  static std::vector<uint8_t> bytes = FiniteBytes(WorkingSetBytes());
  return bytes;
}

void Read(benchmark::State& state) {
  const auto read = FindPeakLoops(GetOps()->isa).read;
  if (read == nullptr) return state.SkipWithError("no read loop in this set");
  const int threads = static_cast<int>(state.range(0));
  ThreadPool pool(threads, AllowedCpus());
  const uint64_t bytes = Weights().size() / static_cast<uint64_t>(threads) / 512 * 512;
  for (auto _ : state) {
    pool.Run(threads,
             [&](int part) { read(&Weights()[static_cast<uint64_t>(part) * bytes], bytes); });
  }
  state.SetBytesProcessed(int64_t(state.iterations() * bytes * uint64_t(threads)));
}

void OneToken(benchmark::State& state, WeightType type, int threads) {
  const uint64_t row_bytes = RowBytes(type, kCols).value();
  const auto rows = static_cast<uint32_t>(Weights().size() / row_bytes / 64 * 64);
  FixExponents(type, &Weights());
  const Ops& ops = *GetOps();
  const MatmulFixture fixture(ops, type, 1, rows, Weights().data());
  ThreadPool pool(threads, AllowedCpus());
  const uint32_t part_rows = rows / uint32_t(threads);
  const auto processor_start = std::clock();
  for (auto _ : state) {
    pool.Run(threads, [&](int part) {
      const auto begin = uint32_t(part) * part_rows;
      ops.matmul(fixture.args, begin, begin + part_rows);
    });
  }
  const auto bytes = int64_t(state.iterations() * rows * row_bytes);
  state.SetBytesProcessed(bytes);
  if (threads == 1)
    state.counters["cpu_GB/s"] =
        double(bytes) / 1e9 * CLOCKS_PER_SEC / double(std::clock() - processor_start);
}

void ManyTokens(benchmark::State& state, WeightType type, uint32_t tokens) {
  constexpr uint32_t kRows = 512;
  FixExponents(type, &Weights());
  const Ops& ops = *GetOps();
  const MatmulFixture fixture(ops, type, tokens, kRows, Weights().data());
  for (auto _ : state) ops.matmul(fixture.args, 0, kRows);
  state.counters["GOP/s"] = benchmark::Counter(2e-9 * kRows * kCols * tokens,
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void Register() {
  benchmark::RegisterBenchmark("read", Read)->Arg(1)->Arg(2)->UseRealTime();
  for (const WeightType type : MeasuredTypes()) {
    const std::string name = InfoOf(type).name;
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(("one/" + name + "/" + std::to_string(threads)).c_str(),
                                   OneToken, type, threads)
          ->UseRealTime();
    }
    for (const uint32_t tokens : {2u, 4u, 16u, 128u, 512u}) {
      benchmark::RegisterBenchmark(("many/" + name + "/" + std::to_string(tokens)).c_str(),
                                   ManyTokens, type, tokens);
    }
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
