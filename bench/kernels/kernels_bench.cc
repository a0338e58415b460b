// Matrix kernels per weight type: GB/s of weights for one token (from a working set beyond the
// last-level cache) beside the machine's plain read rate, and GOP/s for prompts. Two operations per
// weight and token.
//
//   kernels_bench --benchmark_filter=one/Q4_K
// Names: read/THREADS, one/TYPE/THREADS (one token), many/TYPE/TOKENS (one thread),
// attention/GROUP/POSITIONS.
#include <benchmark/benchmark.h>

#include <atomic>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "quant/types.h"

namespace sluice {
namespace {

constexpr uint64_t kWorkingSetBytes = 64 << 20;
constexpr uint32_t kCols = 2048;

const WeightType kTypes[] = {
    WeightType::kQ4_K,    WeightType::kQ6_K,    WeightType::kQ5_K,   WeightType::kQ4_0,
    WeightType::kQ4_1,    WeightType::kQ8_0,    WeightType::kQ5_0,   WeightType::kQ5_1,
    WeightType::kQ2_K,    WeightType::kQ3_K,    WeightType::kIQ4_NL, WeightType::kIQ4_XS,
    WeightType::kMXFP4,   WeightType::kTQ1_0,   WeightType::kTQ2_0,  WeightType::kIQ1_S,
    WeightType::kIQ1_M,   WeightType::kIQ2_XXS, WeightType::kIQ2_XS, WeightType::kIQ2_S,
    WeightType::kIQ3_XXS, WeightType::kIQ3_S,   WeightType::kF16,    WeightType::kBF16,
    WeightType::kF32};

std::vector<uint8_t> RandomBytes(uint64_t n) {
  std::vector<uint8_t> bytes(n);
  std::mt19937_64 rng(1);
  for (uint64_t i = 0; i + 8 <= n; i += 8) {
    // Keeps every half and float finite: no exponent byte above 0x3b.
    const uint64_t v = rng() & 0x3b3b3b3b3b3b3b3bull;
    __builtin_memcpy(&bytes[i], &v, 8);
  }
  return bytes;
}

// Exponent bytes of MXFP4 as models have them: subnormal scales would measure the processor's slow
// path.
void FixExponents(WeightType type, std::vector<uint8_t>* bytes) {
  if (type != WeightType::kMXFP4) return;
  for (uint64_t i = 0; i < bytes->size(); i += 17) (*bytes)[i] = uint8_t(0x70 + (*bytes)[i] % 8);
}

std::vector<uint8_t>& WorkingSet() {
  static std::vector<uint8_t> bytes = RandomBytes(kWorkingSetBytes);
  return bytes;
}

struct Problem {
  Problem(WeightType type, uint32_t tokens, uint32_t rows) : rows_(rows) {
    const Ops& ops = *GetOps();
    const ActFormat format = ActFormatOf(type);
    const uint64_t scales = ActScales(format, kCols), sums = ActSums(format, kCols);
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    f32_.resize(uint64_t{tokens} * kCols);
    for (float& v : f32_) v = normal(rng);
    q_.resize(f32_.size());
    scale_.resize(tokens * scales);
    sums_.resize(tokens * sums);
    for (uint32_t t = 0; t < tokens && format != ActFormat::kF32; ++t) {
      ops.quantize(format, &f32_[uint64_t{t} * kCols], kCols, &q_[uint64_t{t} * kCols],
                   &scale_[t * scales], &sums_[t * sums]);
    }
    out_.resize(uint64_t{tokens} * rows);
    FixExponents(type, &WorkingSet());
    args.weights = WorkingSet().data();
    args.row_bytes = RowBytes(type, kCols).value();
    args.type = type;
    args.x = {.format = format,
              .rows = tokens,
              .cols = kCols,
              .f32 = f32_.data(),
              .f32_stride = kCols,
              .q = q_.data(),
              .scale = scale_.data(),
              .sums = sums_.data(),
              .q_stride = kCols,
              .scale_stride = scales,
              .sums_stride = sums};
    args.out = out_.data();
    args.out_stride = rows;
  }
  MatmulArgs args;
  uint32_t rows_;
  std::vector<float> f32_, scale_, out_;
  std::vector<int8_t> q_;
  std::vector<int16_t> sums_;
};

void Read(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  ThreadPool pool(threads, AllowedCpus());
  const std::vector<uint8_t>& bytes = WorkingSet();
  const uint64_t words = bytes.size() / 8 / static_cast<uint64_t>(threads);
  std::atomic<uint64_t> total = 0;
  for (auto _ : state) {
    pool.Run(threads, [&](int part) {
      const auto* p = reinterpret_cast<const uint64_t*>(bytes.data()) + words * uint64_t(part);
      uint64_t a = 0, b = 0, c = 0, d = 0;
      for (uint64_t i = 0; i + 32 <= words; i += 32) {
        for (uint64_t j = 0; j < 32; j += 4) {
          a += p[i + j], b += p[i + j + 1], c += p[i + j + 2], d += p[i + j + 3];
        }
      }
      total += a + b + c + d;
    });
  }
  benchmark::DoNotOptimize(total.load());
  state.SetBytesProcessed(int64_t(state.iterations() * words * 8 * uint64_t(threads)));
}

void OneToken(benchmark::State& state, WeightType type, int threads) {
  const auto rows =
      static_cast<uint32_t>(kWorkingSetBytes / RowBytes(type, kCols).value() / 64 * 64);
  Problem problem(type, 1, rows);
  const Ops& ops = *GetOps();
  ThreadPool pool(threads, AllowedCpus());
  const uint32_t part_rows = rows / uint32_t(threads);
  const auto processor_start = std::clock();
  for (auto _ : state) {
    pool.Run(threads, [&](int part) {
      const auto begin = uint32_t(part) * part_rows;
      ops.matmul(problem.args, begin, begin + part_rows);
    });
  }
  const auto bytes = int64_t(state.iterations() * rows * problem.args.row_bytes);
  state.SetBytesProcessed(bytes);
  if (threads == 1)
    state.counters["cpu_GB/s"] =
        double(bytes) / 1e9 * CLOCKS_PER_SEC / double(std::clock() - processor_start);
}

void ManyTokens(benchmark::State& state, WeightType type, uint32_t tokens) {
  constexpr uint32_t kRows = 512;
  Problem problem(type, tokens, kRows);
  const Ops& ops = *GetOps();
  for (auto _ : state) ops.matmul(problem.args, 0, kRows);
  state.counters["GOP/s"] = benchmark::Counter(2e-9 * kRows * kCols * tokens,
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void Attention(benchmark::State& state) {
  const auto group = uint32_t(state.range(0)), positions = uint32_t(state.range(1));
  constexpr uint32_t kDim = 128;
  const Ops& ops = *GetOps();
  const uint64_t row = KvRowBytes(KvFormat::kF16, false, kDim);
  std::vector<uint8_t> kv(2 * row * positions);
  std::vector<float> x(kDim, 0.25f), q(group * kDim, 0.5f), out(group * kDim);
  for (uint64_t i = 0; i < 2 * positions; ++i) {
    ops.kv_store(KvFormat::kF16, i & 1, x.data(), kDim, kv.data() + i * row);
  }
  std::vector<const uint8_t*> pages;
  for (uint64_t p = 0; p < positions; p += kKvPageTokens) pages.push_back(kv.data() + 2 * p * row);
  const AttentionArgs args{.q = q.data(),
                           .group = group,
                           .dim_k = kDim,
                           .dim_v = kDim,
                           .format = KvFormat::kF16,
                           .pages = pages.data(),
                           .k_offset = 0,
                           .v_offset = row * kKvPageTokens,
                           .k_row = row,
                           .v_row = row,
                           .first = 0,
                           .last = positions - 1,
                           .scale = 0.1f,
                           .out = out.data()};
  for (auto _ : state) ops.attention(args);
  state.SetBytesProcessed(int64_t(state.iterations() * kv.size()));
}

void Register() {
  benchmark::RegisterBenchmark("read", Read)->Arg(1)->Arg(2)->UseRealTime();
  for (const WeightType type : kTypes) {
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
  benchmark::RegisterBenchmark("attention", Attention)
      ->Args({1, 4096})
      ->Args({4, 4096})
      ->Args({8, 4096})
      ->Args({16, 4096});
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
