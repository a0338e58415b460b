// One token with one KV head keeps every thread busy: its query heads are cut into pieces, and the
// bits are those of one thread. So do latent attention and its products per head.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "model/forward.h"

namespace sluice {
namespace {

std::vector<float> Gaussian(uint64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist;
  std::vector<float> x(n);
  for (float& v : x) v = scale * dist(rng);
  return x;
}

std::atomic<int> g_calls;

// The machine's kernels, with attention counted.
Ops CountingOps() {
  Ops ops = *GetOps();
  ops.attention = [](const AttentionArgs& args) {
    g_calls.fetch_add(1);
    GetOps()->attention(args);
  };
  return ops;
}

// One layer, `rows` tokens behind `before` others whose keys and values are random.
class Layer {
 public:
  Layer(const ModelConfig& config, int threads, uint32_t rows, uint32_t before)
      : c_(config),
        ops_(CountingOps()),
        pool_(threads),
        exec_(&ops_, &pool_, false, false),
        kv_(MakeKvLayout(c_, KvFormat::kF16)),
        state_(MakeStateLayout(c_)) {
    constexpr uint32_t kFormats = 7;
    const Widths widths = WidthsOf(c_);
    arena_ =
        Arena::Make(&ledger_, "test", Activations::Bytes(widths, rows, kFormats), Touch::kLazily)
            .value();
    a_ = Activations::Place(&arena_, widths, rows, kFormats);
    const uint32_t pages = (before + rows) / kKvPageTokens + 1;
    memory_.assign(pages, std::vector<uint8_t>(kv_.page_bytes));
    for (uint32_t p = 0; p < pages; ++p) {
      const std::vector<float> x = Gaussian(kv_.page_bytes / 2, 100 + p);
      ops_.kv_store(KvFormat::kF16, false, x.data(), static_cast<uint32_t>(x.size()),
                    memory_[p].data());
      table_.push_back(memory_[p].data());
    }
    view_.pages = table_.data();
    for (uint32_t i = 0; i < rows; ++i) pos_.push_back(before + i);
    seq_.assign(rows, &view_);
    cos_ = Gaussian(uint64_t{rows} * c_.rope.dims / 2, 3);
    sin_ = Gaussian(uint64_t{rows} * c_.rope.dims / 2, 4);
    x = Gaussian(uint64_t{rows} * c_.hidden, 5);
    f.t = {.rows = rows,
           .pos = pos_.data(),
           .seq = seq_.data(),
           .cos = cos_.data(),
           .sin = sin_.data(),
           .x = x.data()};
    Fill(a_.q, uint64_t{rows} * widths.q, 6);
    Fill(a_.k, uint64_t{rows} * widths.k, 7);
    Fill(a_.v, uint64_t{rows} * widths.v, 8);
    g_calls = 0;
  }

 private:
  static void Fill(float* to, uint64_t n, uint32_t seed) {
    const std::vector<float> from = Gaussian(n, seed);
    std::copy(from.begin(), from.end(), to);
  }

  const ModelConfig c_;
  const Ops ops_;
  ThreadPool pool_;
  Exec exec_;
  const KvLayout kv_;
  const StateLayout state_;
  Ledger ledger_{uint64_t{1} << 30};
  Arena arena_;
  Activations a_;
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<uint8_t*> table_;
  SequenceView view_;
  std::vector<uint32_t> pos_;
  std::vector<const SequenceView*> seq_;
  std::vector<float> cos_, sin_;

 public:
  std::vector<float> x;
  Forward f{c_, kv_, state_, &exec_, &a_, nullptr};
};

ModelConfig Config(uint32_t heads, uint32_t kv_heads, uint32_t dim) {
  ModelConfig c;
  c.layers = 1;
  c.hidden = 64;
  c.heads = {heads};
  c.kv_heads = {kv_heads};
  c.layer_ff = {0};
  c.kinds = {LayerKind::kFull};
  c.head_dim = c.head_dim_v = dim;
  c.rope.dims = dim;
  c.attention_scale = 0.1f;
  return c;
}

struct Matrices {
  Matrix Make(WeightType type, uint32_t rows, uint32_t cols) {
    const uint64_t row_bytes = RowBytes(type, cols).value();
    std::vector<uint8_t> bytes(rows * row_bytes);
    if (type == WeightType::kQ8_0) {
      std::mt19937 rng(cols + rows);
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
      const uint16_t half = FloatToHalf(0.002f);
      for (uint64_t at = 0; at < bytes.size(); at += 34) std::memcpy(&bytes[at], &half, 2);
    } else {
      const std::vector<float> w = Gaussian(uint64_t{rows} * cols, cols + rows, 0.1f);
      std::memcpy(bytes.data(), w.data(), bytes.size());
    }
    kept.push_back(std::move(bytes));
    return {kept.back().data(), type, rows, cols, row_bytes};
  }
  std::vector<std::vector<uint8_t>> kept;
};

struct Want {
  uint32_t heads, kv_heads, rows;
  int threads, calls;
};

TEST(AttentionSplit, QueryHeadsOfOneTokenGoToAllThreads) {
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kF32}) {
    for (const Want& w : {Want{8, 1, 1, 2, 2}, Want{8, 1, 1, 4, 4}, Want{6, 2, 1, 4, 6},
                          Want{8, 2, 1, 2, 2}, Want{8, 1, 3, 2, 3}, Want{8, 1, 2, 4, 4}}) {
      const ModelConfig c = Config(w.heads, w.kv_heads, 64);
      LayerWeights weights;
      Matrix& o = weights.matrix[static_cast<size_t>(MatrixRole::kO)];
      o.type = type;  // says how the outputs are quantised; its weights are not read
      const auto outputs = [&](int threads, int calls) {
        Layer layer(c, threads, w.rows, 900);
        const std::vector<float> gate = Gaussian(uint64_t{w.rows} * w.heads * 64, 9);
        const Operand out = layer.f.Attend(weights, {.gate = gate.data()});
        EXPECT_EQ(g_calls, calls) << w.heads << "/" << w.kv_heads << ", " << threads << " threads";
        const uint64_t n = uint64_t{w.rows} * w.heads * 64;
        std::vector<uint8_t> bytes(n * 4);
        std::memcpy(bytes.data(), layer.f.a.mixed, n * 4);
        const ActFormat format = ActFormatOf(type);
        if (format != ActFormat::kF32) {
          const ActBuffer::Part& part = out.act->part(format);
          bytes.insert(bytes.end(), part.q, part.q + n);
          const auto* scale = reinterpret_cast<const uint8_t*>(part.scale);
          bytes.insert(bytes.end(), scale, scale + ActScales(format, n) * 4);
        }
        return bytes;
      };
      EXPECT_EQ(outputs(w.threads, w.calls), outputs(1, int(w.rows * w.kv_heads)))
          << w.heads << "/" << w.kv_heads << ", " << w.threads << " threads";
    }
  }
}

TEST(AttentionSplit, LatentAttentionToo) {
  for (const WeightType type : {WeightType::kF32, WeightType::kQ8_0}) {
    ModelConfig c = Config(6, 1, 48);
    c.mla = {.q_rank = 0, .kv_rank = 64, .nope_dim = 32, .rope_dim = 16, .value_dim = 32};
    c.rope.dims = 16;
    Matrices m;
    LayerWeights w;
    const auto set = [&](MatrixRole role, uint32_t rows, uint32_t cols) {
      w.matrix[static_cast<size_t>(role)] = m.Make(type, rows, cols);
    };
    set(MatrixRole::kQ, 6 * 48, 64);
    set(MatrixRole::kMlaKvA, 80, 64);
    set(MatrixRole::kMlaKB, 6 * 64, 32);
    set(MatrixRole::kMlaVB, 6 * 32, 64);
    set(MatrixRole::kO, 64, 6 * 32);
    const std::vector<float> ones(64, 1.0f);
    w.vector[static_cast<size_t>(VectorRole::kAttnNorm)] = ones.data();
    w.vector[static_cast<size_t>(VectorRole::kMlaKvANorm)] = ones.data();
    for (const uint32_t rows : {1u, 2u, 9u}) {
      const auto outputs = [&](int threads) {
        Layer layer(c, threads, rows, 900);
        LatentAttention(layer.f, w);
        const int pieces = rows == 1 ? threads : rows == 2 && threads == 3 ? 3 : 1;
        // With one thread two rows at a time are still four calls for it and more.
        const int runs = rows == 9 && threads == 1 ? 5 : int(rows);
        EXPECT_EQ(g_calls, runs * pieces) << rows << " rows, " << threads << " threads";
        return layer.x;
      };
      const std::vector<float> want = outputs(1);
      for (const int threads : {2, 3}) {
        const std::vector<float> got = outputs(threads);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0)
            << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(AttentionSplit, OnlyWhereThreadsWouldIdle) {
  constexpr uint64_t kMany = 1 << 20;
  EXPECT_EQ(HeadPieces(1, 16, 2, kMany), 2u);
  EXPECT_EQ(HeadPieces(1, 16, 3, kMany),
            2u);  // eight would win a fourth and load four times as often
  EXPECT_EQ(HeadPieces(1, 7, 4, kMany), 7u);
  EXPECT_EQ(HeadPieces(4, 8, 8, kMany), 2u);
  EXPECT_EQ(HeadPieces(8, 4, 8, kMany), 1u);
  EXPECT_EQ(HeadPieces(3, 3, 2, kMany), 1u);    // two rounds or five thirds: not worth it
  EXPECT_EQ(HeadPieces(512, 8, 4, kMany), 1u);  // a prompt
  EXPECT_EQ(HeadPieces(1, 16, 1, kMany), 1u);
  EXPECT_EQ(HeadPieces(1, 1, 8, kMany), 1u);
  EXPECT_EQ(HeadPieces(1, 16, 8, 1000), 1u);  // sooner done than woken
}

}  // namespace
}  // namespace sluice
