// Attention over paged KV in every format against a plain softmax in double, and the KV formats
// themselves.
#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8, KvFormat::kK8V4};

struct Shape {
  uint32_t group, dim_k, dim_v, first, last;
  bool sinks = false, latent = false;  // latent: V is the head of the K row, as in MLA
};

// Pages with another layer's rows in front (odd offsets), filled through kv_store.
struct Cache {
  Cache(const Ops& ops, KvFormat kv_format, const Shape& s, uint32_t seed) : format(kv_format) {
    k_row = KvRowBytes(format, false, s.dim_k);
    v_row = s.latent ? k_row : KvRowBytes(format, true, s.dim_v);
    k_offset = 6;
    v_offset = s.latent ? k_offset : k_offset + kKvPageTokens * k_row + 10;
    const uint64_t page_bytes = v_offset + kKvPageTokens * v_row;
    const uint32_t pages = s.last / kKvPageTokens + 1;
    storage.assign(pages, std::vector<uint8_t>(page_bytes, 0xff));  // NaN where nothing is stored
    k = Gaussian((s.last + 1) * s.dim_k, seed);
    v = Gaussian((s.last + 1) * s.dim_v, seed + 1);
    for (uint32_t p = 0; p < pages; ++p) table.push_back(storage[p].data());
    for (uint32_t p = s.first; p <= s.last; ++p) {
      uint8_t* page = storage[p / kKvPageTokens].data();
      const uint64_t row = p % kKvPageTokens;
      ops.kv_store(format, false, &k[p * s.dim_k], s.dim_k, page + k_offset + row * k_row);
      if (s.latent) continue;
      ops.kv_store(format, true, &v[p * s.dim_v], s.dim_v, page + v_offset + row * v_row);
    }
  }
  KvFormat format;
  uint64_t k_row, v_row, k_offset, v_offset;
  std::vector<std::vector<uint8_t>> storage;
  std::vector<const uint8_t*> table;
  std::vector<float> k, v;
};

AttentionArgs ArgsOf(const Cache& cache, const Shape& s, const std::vector<float>& sinks,
                     float scale) {
  return {.group = s.group,
          .dim_k = s.dim_k,
          .dim_v = s.dim_v,
          .format = cache.format,
          .pages = cache.table.data(),
          .k_offset = cache.k_offset,
          .v_offset = cache.v_offset,
          .k_row = cache.k_row,
          .v_row = cache.v_row,
          .first = s.first,
          .last = s.last,
          .scale = scale,
          .sinks = s.sinks ? sinks.data() : nullptr};
}

std::vector<float> Attend(const Ops& ops, const Cache& cache, const Shape& s,
                          const std::vector<float>& q, const std::vector<float>& sinks,
                          float scale) {
  std::vector<float> out(s.group * s.dim_v, NAN);
  AttentionArgs args = ArgsOf(cache, s, sinks, scale);
  args.q = q.data();
  args.out = out.data();
  ops.attention(args);
  return out;
}

std::vector<double> Naive(const Cache& cache, const Shape& s, const std::vector<float>& q,
                          const std::vector<float>& sinks, double scale) {
  std::vector<double> out(s.group * s.dim_v);
  for (uint32_t h = 0; h < s.group; ++h) {
    std::vector<double> p;
    double max = s.sinks ? sinks[h] : -1e300, sum = 0;
    for (uint32_t j = s.first; j <= s.last; ++j) {
      double dot = 0;
      for (uint32_t i = 0; i < s.dim_k; ++i) {
        dot += double(q[h * s.dim_k + i]) * cache.k[j * s.dim_k + i];
      }
      p.push_back(dot * scale);
      max = std::max(max, p.back());
    }
    for (double& v : p) sum += v = std::exp(v - max);
    if (s.sinks) sum += std::exp(sinks[h] - max);
    for (uint32_t j = s.first; j <= s.last; ++j) {
      const float* v = s.latent ? &cache.k[j * s.dim_k] : &cache.v[j * s.dim_v];
      for (uint32_t i = 0; i < s.dim_v; ++i) out[h * s.dim_v + i] += p[j - s.first] / sum * v[i];
    }
  }
  return out;
}

// What a format's rounding of K and V costs at these sizes (values of order 1).
double ToleranceOf(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return 5e-6;
    case KvFormat::kF16:
      return 2e-3;
    case KvFormat::kQ8:
      return 3e-2;
    case KvFormat::kK8V4:
      return 2e-1;
  }
  return 0;
}

const Shape kShapes[] = {
    {1, 64, 64, 0, 0},          {1, 64, 64, 0, 62},
    {2, 64, 64, 0, 63},         {3, 96, 80, 0, 64},
    {4, 128, 128, 5, 200},      {5, 64, 64, 63, 64},
    {7, 80, 64, 100, 321},      {8, 128, 128, 0, 130},
    {16, 256, 256, 3, 70},      {17, 64, 64, 0, 100},
    {3, 12, 20, 0, 90},         {4, 64, 64, 0, 127, true},
    {6, 72, 40, 3, 90},         {13, 112, 48, 30, 190, true},
    {9, 64, 64, 65, 300, true}, {20, 576, 512, 0, 77, false, true},
};

class AttentionTest : public IsaTest {};

TEST_P(AttentionTest, MatchesPlainSoftmax) {
  for (const KvFormat format : kFormats) {
    for (const Shape& s : kShapes) {
      const Cache cache(ops(), format, s, s.last + 7);
      const auto q = Gaussian(s.group * s.dim_k, 1), sinks = Gaussian(s.group, 2, 2);
      const auto scale = float(1 / std::sqrt(double(s.dim_k)));
      const auto got = Attend(ops(), cache, s, q, sinks, scale);
      const auto want = Naive(cache, s, q, sinks, scale);
      EXPECT_LT(RelativeError(got, want), ToleranceOf(format))
          << int(format) << " group " << s.group << " last " << s.last;
    }
  }
}

TEST_P(AttentionTest, MatchesScalarOnTheSameBytes) {
  for (const KvFormat format : kFormats) {
    for (const Shape& s : kShapes) {
      const Cache cache(scalar(), format, s, s.last + 9);
      const auto q = Gaussian(s.group * s.dim_k, 3, 3), sinks = Gaussian(s.group, 4);
      const auto got = Attend(ops(), cache, s, q, sinks, 0.1f);
      const auto want = Attend(scalar(), cache, s, q, sinks, 0.1f);
      EXPECT_LT(RelativeError(got, want), 1e-5) << int(format) << " group " << s.group;
    }
  }
}

// A head's bits do not depend on its companions in the group.
TEST_P(AttentionTest, HeadsTogetherEqualHeadsAlone) {
  for (const KvFormat format : kFormats) {
    Shape s{19, 64, 96, 10, 150, true};
    const Cache cache(ops(), format, s, 5);
    const auto q = Gaussian(s.group * s.dim_k, 6), sinks = Gaussian(s.group, 7);
    const auto together = Attend(ops(), cache, s, q, sinks, 0.125f);
    Shape one = s;
    one.group = 1;
    for (uint32_t h = 0; h < s.group; ++h) {
      const std::vector<float> qh(q.begin() + h * s.dim_k, q.begin() + (h + 1) * s.dim_k);
      const auto alone = Attend(ops(), cache, one, qh, {sinks[h]}, 0.125f);
      EXPECT_EQ(0, std::memcmp(alone.data(), &together[h * s.dim_v], s.dim_v * 4)) << h;
    }
  }
}

// A prompt's tokens, some of whose pages all of them see: each has the bits it has alone.
TEST_P(AttentionTest, TokensTogetherEqualTokensAlone) {
  struct Run {
    uint32_t last, rows;
  };
  const Shape shapes[] = {{1, 64, 64, 0, 0}, {3, 64, 64, 0, 0, true},          {8, 256, 256, 0, 0},
                          {5, 96, 80, 0, 0}, {4, 128, 128, 0, 0, true},        {2, 40, 24, 0, 0},
                          {6, 12, 20, 0, 0}, {17, 576, 512, 0, 0, false, true}};
  for (const KvFormat format : kFormats) {
    for (Shape s : shapes) {
      for (const Run run : {Run{0, 7}, Run{60, 33}, Run{63, 16}, Run{64, 4}, Run{190, 5},
                            Run{319, 18}, Run{130, 1}}) {
        s.last = run.last + run.rows - 1;
        const Cache cache(ops(), format, s, s.last + 21);
        const uint64_t q_row = s.group * s.dim_k + 8, out_row = s.group * s.dim_v + 16;
        const auto q = Gaussian(static_cast<uint32_t>(q_row) * run.rows, run.last + 1, 2),
                   sinks = Gaussian(s.group, 4);
        AttentionArgs args = ArgsOf(cache, s, sinks, 0.1f);
        std::vector<float> together(out_row * run.rows, NAN);
        args.q = q.data();
        args.q_stride = q_row;
        args.out = together.data();
        args.out_stride = out_row;
        args.rows = run.rows;
        args.last = run.last;
        ops().attention(args);
        for (uint32_t r = 0; r < run.rows; ++r) {
          Shape one = s;
          one.last = run.last + r;
          const std::vector<float> row(q.begin() + static_cast<long>(r * q_row), q.end());
          const auto alone = Attend(ops(), cache, one, row, sinks, 0.1f);
          ASSERT_EQ(0, std::memcmp(alone.data(), &together[r * out_row], alone.size() * 4))
              << int(format) << " group " << s.group << " last " << run.last << " row " << r;
          EXPECT_TRUE(std::isnan(together[(r + 1) * out_row - 1])) << "written beyond its row";
        }
      }
    }
  }
}

// Scores that rise page by page force a rescale on each; large ones must not overflow.
TEST_P(AttentionTest, LargeScores) {
  const Shape s{2, 64, 64, 0, 255};
  const Cache cache(ops(), KvFormat::kF32, s, 11);
  const auto q = Gaussian(s.group * s.dim_k, 12, 50);
  const auto got = Attend(ops(), cache, s, q, {}, 1);
  EXPECT_LT(RelativeError(got, Naive(cache, s, q, {}, 1)), 1e-4);
}

TEST_P(AttentionTest, NanReachesTheOutput) {
  const Shape s{3, 64, 64, 0, 100};
  for (const KvFormat format : kFormats) {
    Cache cache(ops(), format, s, 13);
    std::vector<float> row(64, 1);
    row[17] = NAN;
    ops().kv_store(format, false, row.data(), 64,
                   cache.storage[1].data() + cache.k_offset + 3 * cache.k_row);
    const auto got = Attend(ops(), cache, s, Gaussian(3 * 64, 14), {}, 0.1f);
    for (const float v : got) EXPECT_TRUE(std::isnan(v));
  }
}

TEST_P(AttentionTest, StoresTheSameBytesAsScalar) {
  for (const KvFormat format : kFormats) {
    for (const bool is_value : {false, true}) {
      for (const uint32_t n : {8u, 33u, 64u, 100u, 576u}) {
        const uint64_t bytes = KvRowBytes(format, is_value, n);
        std::vector<uint8_t> a(bytes + 4, 0x5a), b(bytes + 4, 0x5a);
        std::vector<float> x = Gaussian(n, n, 20);
        for (uint32_t i = 0; i < n && i < 32; ++i) x[i] = 0;  // a constant block
        if (n > 64) x[70] = 1e9f;                             // beyond half
        ops().kv_store(format, is_value, x.data(), n, a.data());
        scalar().kv_store(format, is_value, x.data(), n, b.data());
        EXPECT_EQ(a, b) << int(format) << " n " << n;
        EXPECT_EQ(a[bytes], 0x5a);
      }
    }
  }
}

// Rows where rounding, clamping and zeros of both signs could differ.
TEST_P(AttentionTest, StoresTheSameBytesOfOddRows) {
  std::vector<std::vector<float>> rows;
  const auto alternating = [&](float even, float odd) {
    std::vector<float> x(64);
    for (uint32_t i = 0; i < 64; ++i) x[i] = i % 2 ? odd : even;
    rows.push_back(x);
  };
  alternating(0.0f, -0.0f);
  alternating(-0.0f, 0.0f);
  alternating(-0.0f, -0.0f);
  alternating(-0.0f, 3.0f);
  alternating(0.0f, -3.0f);
  alternating(1e-6f, -3e-7f);  // the scale is a subnormal half
  alternating(1e-9f, 2e-9f);   // and here zero
  alternating(1e5f, -2e5f);
  alternating(1e7f, 3.4e38f);
  alternating(-3.4e38f, 3.4e38f);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    rows.push_back(Gaussian(64, 3));
    rows.back()[40] = bad;
  }
  for (uint32_t i = 0; i < 200; ++i) rows.push_back(Gaussian(64, 100 + i, 0.01f * float(i)));
  for (const KvFormat format : {KvFormat::kQ8, KvFormat::kK8V4}) {
    for (const bool is_value : {false, true}) {
      for (uint32_t i = 0; i < rows.size(); ++i) {
        std::vector<uint8_t> a(KvRowBytes(format, is_value, 64)), b = a;
        ops().kv_store(format, is_value, rows[i].data(), 64, a.data());
        scalar().kv_store(format, is_value, rows[i].data(), 64, b.data());
        EXPECT_EQ(a, b) << int(format) << " row " << i;
      }
    }
  }
}

SLUICE_EVERY_ISA(AttentionTest);

}  // namespace
}  // namespace sluice::testing
