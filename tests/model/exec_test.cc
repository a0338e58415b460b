// Regions that join steps (a gated unit after its two products, a sum after its product, a norm
// before them) have the bits of the same steps one by one, whatever threads, formats and planes.
#include "model/exec.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "quant/types.h"

namespace sluice {
namespace {

std::vector<float> Gaussian(uint64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist;
  std::vector<float> x(n);
  for (float& v : x) v = dist(rng);
  return x;
}

// A matrix of random blocks with tame scales.
struct Weights {
  Weights(WeightType type, uint32_t rows, uint32_t cols, uint32_t seed) {
    const uint64_t row_bytes = RowBytes(type, cols).value();
    bytes.resize(rows * row_bytes);
    std::mt19937 rng(seed);
    if (type == WeightType::kF32) {
      const std::vector<float> x = Gaussian(uint64_t{rows} * cols, seed);
      std::memcpy(bytes.data(), x.data(), bytes.size());
    } else {
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
      const uint32_t block = InfoOf(type).block_bytes;
      const uint16_t half = FloatToHalf(0.01f);
      for (uint64_t at = 0; at < bytes.size(); at += block)
        std::memcpy(&bytes[at + (type == WeightType::kQ6_K ? block - 2 : 0)], &half, 2);
    }
    matrix = {bytes.data(), type, rows, cols, row_bytes};
  }
  std::vector<uint8_t> bytes;
  Matrix matrix;
};

// Tokens, an Exec, and room for both.
struct Bench {
  Bench(int threads, bool two_planes, uint32_t tokens, uint32_t cols_max)
      : pool(threads), exec(GetOps(), &pool, false, two_planes), tokens_(tokens) {
    const uint32_t formats = FormatBit(ActFormat::kQ8x32) | FormatBit(ActFormat::kQ8x256) |
                             (two_planes ? ActBuffer::kTwoPlanes : 0);
    arena = Arena::Make(&ledger, "test", 4 * ActBuffer::Bytes(tokens, cols_max, formats),
                        Touch::kLazily)
                .value();
    in = ActBuffer::Place(&arena, tokens, cols_max, formats);
    out = ActBuffer::Place(&arena, tokens, cols_max, formats);
    want = ActBuffer::Place(&arena, tokens, cols_max, formats);
  }
  MatmulArgs Args(const Matrix& w, const Operand& x, const float* bias) const {
    return exec.ArgsOf(w, x, bias);
  }
  void ExpectSameInts(ActFormat format, uint32_t cols, const std::string& what) const {
    if (format == ActFormat::kF32) return;
    const uint64_t rows = uint64_t{tokens_} * exec.planes();
    const ActBuffer::Part &a = out.part(format), &b = want.part(format);
    EXPECT_EQ(std::memcmp(a.q, b.q, rows * cols), 0) << what;
    EXPECT_EQ(std::memcmp(a.scale, b.scale, rows * ActScales(format, cols) * 4), 0) << what;
    EXPECT_EQ(std::memcmp(a.sums, b.sums, rows * ActSums(format, cols) * 2), 0) << what;
  }
  ThreadPool pool;
  Exec exec;
  uint32_t tokens_;
  Ledger ledger{uint64_t{1} << 30};
  Arena arena;
  ActBuffer in, out, want;
};

struct Case {
  WeightType type;
  uint32_t cols, rows;
};

constexpr uint32_t kFormats = FormatBit(ActFormat::kQ8x32) | FormatBit(ActFormat::kQ8x256);

template <class F>
void ForEachSetting(F run) {
  for (const int threads : {1, 2, 3}) {
    for (const bool two_planes : {false, true}) {
      for (const uint32_t tokens : {1u, 2u, 7u, 64u, 65u, 130u}) {
        run(threads, two_planes, tokens,
            std::to_string(threads) + " threads, " + std::to_string(tokens) + " tokens" +
                (two_planes ? ", two planes" : ""));
      }
    }
  }
}

TEST(Regions, GatedUnit) {
  // 512 rows are too few blocks of 256 for any number of threads, 4,608 are enough for three.
  const Case cases[] = {{WeightType::kQ8_0, 96, 160},
                        {WeightType::kQ6_K, 256, 512},
                        {WeightType::kQ8_0, 64, 4608},
                        {WeightType::kF32, 40, 256}};
  ForEachSetting([&](int threads, bool two_planes, uint32_t tokens, const std::string& what) {
    for (const Case& c : cases) {
      Bench b(threads, two_planes, tokens, std::max(c.rows, c.cols));
      const Weights gate(c.type, c.rows, c.cols, 1), up(c.type, c.rows, c.cols, 2);
      const auto x = Gaussian(uint64_t{tokens} * c.cols, 3), bias = Gaussian(c.rows, 4);
      const Operand in = b.exec.Quantize(b.in, x.data(), c.cols, tokens, c.cols,
                                         c.cols % 256 == 0 ? kFormats : 2u);
      std::vector<float> g(uint64_t{tokens} * c.rows), u = g, y = g;
      b.exec.Project(in, std::array{Projection{&gate.matrix, g.data(), c.rows, bias.data()},
                                    Projection{&up.matrix, u.data(), c.rows, nullptr}});
      for (uint64_t t = 0; t < tokens; ++t)
        GetOps()->silu_mul(&g[t * c.rows], &u[t * c.rows], c.rows, &g[t * c.rows]);
      for (const ActFormat format : {ActFormat::kF32, ActFormat::kQ8x32, ActFormat::kQ8x256}) {
        if (format == ActFormat::kQ8x256 && c.rows % 256 != 0) continue;
        b.exec.Quantize(b.want, g.data(), c.rows, tokens, c.rows, FormatBit(format));
        const GluJob job{b.Args(gate.matrix, in, bias.data()), b.Args(up.matrix, in, nullptr)};
        b.exec.RunGlu({&job, 1}, {.unit = {},
                                  .n = c.rows,
                                  .format = format,
                                  .gate = y.data(),
                                  .up = u.data(),
                                  .act = &b.out});
        b.ExpectSameInts(format, c.rows, what);
        if (format == ActFormat::kF32) {
          EXPECT_EQ(std::memcmp(y.data(), g.data(), y.size() * 4), 0) << what;
        }
      }
    }
  });
}

TEST(Regions, SumAfterProduct) {
  const Case cases[] = {
      {WeightType::kQ8_0, 64, 300}, {WeightType::kQ6_K, 256, 1024}, {WeightType::kF32, 33, 77}};
  ForEachSetting([&](int threads, bool two_planes, uint32_t tokens, const std::string& what) {
    for (const Case& c : cases) {
      Bench b(threads, two_planes, tokens, c.cols);
      const Weights w(c.type, c.rows, c.cols, 1);
      const auto x = Gaussian(uint64_t{tokens} * c.cols, 2), bias = Gaussian(c.rows, 3);
      const Operand in = b.exec.Quantize(b.in, x.data(), c.cols, tokens, c.cols,
                                         FormatBit(b.exec.FormatFor(c.type)));
      std::vector<float> product(uint64_t{tokens} * c.rows), want = Gaussian(product.size(), 4),
                                                             sum = want;
      b.exec.Project(in, std::array{Projection{&w.matrix, product.data(), c.rows, bias.data()}});
      for (uint64_t t = 0; t < tokens; ++t)
        GetOps()->add(&product[t * c.rows], 0.3f, c.rows, &want[t * c.rows]);
      MatmulJob job{b.Args(w.matrix, in, bias.data()), c.rows, sum.data(), 0.3f};
      job.args.out_stride = c.rows;
      b.exec.Run({&job, 1});
      EXPECT_EQ(std::memcmp(sum.data(), want.data(), sum.size() * 4), 0) << what;
    }
  });
}

// Several formats at once share one norm.
TEST(Regions, NormInEveryFormat) {
  for (const bool two_planes : {false, true}) {
    const uint32_t n = 768, tokens = 3;
    Bench b(1, two_planes, tokens, n);
    std::vector<float> x = Gaussian(n * tokens, 1), y(n * tokens), plain = y;
    const auto w = Gaussian(n, 2);
    for (uint32_t formats = 1; formats < 8; ++formats) {
      for (uint64_t t = 0; t < tokens; ++t) {
        GetOps()->rms_norm(&x[t * n], w.data(), 1e-5f, n, &plain[t * n]);
        b.exec.NormRow({.x = &x[t * n], .w = w.data(), .eps = 1e-5f, .n = n, .y = &y[t * n]}, b.out,
                       t, formats);
      }
      b.exec.Quantize(b.want, plain.data(), n, tokens, n, formats);
      for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
        if ((formats & FormatBit(format)) != 0)
          b.ExpectSameInts(format, n, std::to_string(formats));
      }
      if ((formats & FormatBit(ActFormat::kF32)) != 0) {
        EXPECT_EQ(std::memcmp(y.data(), plain.data(), y.size() * 4), 0) << formats;
      }
    }
  }
}

std::vector<WeightType> EveryType() {
  std::vector<WeightType> types;
  for (uint32_t id = 0; id < 64; ++id) {
    const WeightTypeInfo* info = FindWeightType(id);
    if (info != nullptr && info->decodes) types.push_back(info->type);
  }
  return types;
}

std::atomic<int> g_products;

// One instruction set with its products counted.
Ops Counting(std::string_view isa) {
  static const Ops* plain;
  plain = GetOps(isa);
  Ops ops = *plain;
  ops.matmul = [](const MatmulArgs& args, uint32_t begin, uint32_t end) {
    g_products.fetch_add(1);
    plain->matmul(args, begin, end);
  };
  return ops;
}

struct SameBitsCase {
  const Ops* ops;
  WeightType type;
  bool float_act;
  uint32_t rows, cols;
};

// What each token gives alone on one thread.
std::vector<float> Alone(const SameBitsCase& c, const Matrix& w, const std::vector<float>& x,
                         uint32_t tokens, const ActBuffer& buffer) {
  ThreadPool pool(1);
  Exec exec(c.ops, &pool, c.float_act, false);
  std::vector<float> out(uint64_t{tokens} * c.rows);
  for (uint64_t t = 0; t < tokens; ++t)
    exec.Project(buffer, &x[t * c.cols], c.cols, 1, {{&w, &out[t * c.rows], c.rows, nullptr}});
  return out;
}

void ExpectSameBits(const SameBitsCase& c, const std::vector<uint32_t>& tokens_list) {
  constexpr uint32_t kTokens = 33;
  const uint64_t row_bytes = RowBytes(c.type, c.cols).value();
  std::vector<uint8_t> bytes(c.rows * row_bytes + 1);
  std::mt19937 rng(c.cols);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng()) & 0x3b;  // finite scales
  const Matrix w{bytes.data() + 1, c.type, c.rows, c.cols, row_bytes};
  const std::vector<float> x = Gaussian(uint64_t{kTokens} * c.cols, 3);
  Ledger ledger{uint64_t{1} << 30};
  Arena arena = Arena::Make(&ledger, "test", 2 * ActBuffer::Bytes(kTokens, c.cols, kFormats) + 4096,
                            Touch::kLazily)
                    .value();
  const ActBuffer buffer = ActBuffer::Place(&arena, kTokens, c.cols, kFormats);
  const std::vector<float> want = Alone(c, w, x, kTokens, buffer);
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    Exec exec(c.ops, &pool, c.float_act, false);
    for (const uint32_t tokens : tokens_list) {
      std::vector<float> out(uint64_t{tokens} * c.rows, NAN);
      g_products = 0;
      exec.Project(buffer, x.data(), c.cols, tokens, {{&w, out.data(), c.rows, nullptr}});
      EXPECT_EQ(std::memcmp(out.data(), want.data(), out.size() * 4), 0)
          << c.ops->isa << " " << InfoOf(c.type).name << (c.float_act ? " x f32, " : " x int8, ")
          << c.cols << " columns, " << tokens << " tokens, " << threads << " threads";
      if (threads > 1) EXPECT_GT(g_products, 1) << "the product was not split";
    }
  }
}

// Promise 2 where threads split it: every weight type, odd shapes, 1 to 33 tokens, 1 to 4 threads.
TEST(Regions, ProductsOfEveryTypeHaveOneSetOfBits) {
  std::vector<uint32_t> all(33);
  for (uint32_t i = 0; i < 33; ++i) all[i] = i + 1;
  const std::vector<uint32_t> few = {1, 2, 5, 17, 33};
  for (const std::string_view isa : AvailableIsas()) {
    const Ops ops = Counting(isa);
    const bool slow = isa == "scalar";
    for (const WeightType type : EveryType()) {
      const uint32_t block = InfoOf(type).block_elems;
      for (const uint32_t blocks : {1u, 3u}) {
        if (slow && blocks == 3 && block == 256) continue;
        const uint32_t cols = block == 1    ? 67 * blocks
                              : block == 32 ? 64 * blocks + 32
                                            : 256 * blocks;
        const uint32_t rows = 100'000 / static_cast<uint32_t>(RowBytes(type, cols).value()) | 1;
        ExpectSameBits({&ops, type, false, rows, cols}, slow || blocks == 1 ? few : all);
        if (blocks == 1) ExpectSameBits({&ops, type, true, rows, cols}, few);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
