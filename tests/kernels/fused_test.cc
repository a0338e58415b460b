// Rows made and quantised in one pass have the bits of the plain leaves one after another, on every
// instruction set; their quantised half has the bits of scalar.
#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

constexpr float kEps = 1e-5f, kLimit = 3.5f, kAlpha = 1.702f;
constexpr ActFormat kFormats[] = {ActFormat::kF32, ActFormat::kQ8x32, ActFormat::kQ8x256};

// A quantised row of up to two planes, each behind a gap.
struct Row {
  Row(ActFormat format, uint32_t planes, uint32_t n)
      : q(2 * n + 7, 99),
        scale(2 * ActScales(format, n) + 3, 99),
        sums(2 * ActSums(format, n) + 5) {
    out = {.format = format, .planes = planes};
    if (format == ActFormat::kF32) return;
    out.q = q.data();
    out.scale = scale.data();
    out.sums = sums.data();
    out.q_plane = n + 7;
    out.scale_plane = ActScales(format, n) + 3;
    out.sums_plane = ActSums(format, n) + 5;
  }
  void ExpectSame(const Row& want, const std::string& what) const {
    EXPECT_EQ(q, want.q) << what;
    EXPECT_EQ(sums, want.sums) << what;
    EXPECT_TRUE(SameBits(scale, want.scale)) << what;
  }
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int16_t> sums;
  ActOut out;
};

// What the planes are, in plain words.
void Planes(const Ops& ops, const std::vector<float>& x, const ActOut& out) {
  if (out.format == ActFormat::kF32) return;
  const auto n = static_cast<uint32_t>(x.size());
  ops.quantize(out.format, x.data(), n, out.q, out.scale, out.sums);
  if (out.planes == 1) return;
  const uint32_t block = out.format == ActFormat::kQ8x32 ? 32 : 256;
  std::vector<float> rest(n);
  for (uint32_t i = 0; i < n; ++i) rest[i] = x[i] - out.scale[i / block] * float(out.q[i]);
  ops.quantize(out.format, rest.data(), n, out.q + out.q_plane, out.scale + out.scale_plane,
               out.sums + out.sums_plane);
}

// Every format, plane count and width that the format takes.
template <class F>
void ForEachShape(F run) {
  for (const ActFormat format : kFormats) {
    const uint32_t block = format == ActFormat::kQ8x32    ? 32
                           : format == ActFormat::kQ8x256 ? 256
                                                          : 1;
    for (const uint32_t blocks : {1u, 3u, 5u, 18u, 67u}) {
      for (const uint32_t planes : {1u, 2u}) {
        run(format, planes, blocks * block,
            std::string("block ") + std::to_string(block) + ", " + std::to_string(blocks) +
                " blocks, planes " + std::to_string(planes));
      }
    }
  }
}

// Plain values, and in some blocks what quantisers trip over.
std::vector<float> Values(uint32_t n, uint32_t seed, bool finite = false) {
  std::vector<float> x = Gaussian(n, seed, 2);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t kind = i / 32 % 11;
    if (kind == 3) x[i] = 0;
    if (kind == 5) x[i] *= 1e-40f;
    if (kind == 7) x[i] *= 1e-37f;  // the rest of these is below the smallest block that counts
    if (kind == 9) x[i] = float(int(i % 255) - 127) / 2;
  }
  if (!finite && n > 1000) x[n / 2] = NAN, x[n / 4] = INFINITY;
  return x;
}

class Fused : public IsaTest {};

TEST_P(Fused, QuantizeRow) {
  ForEachShape([&](ActFormat format, uint32_t planes, uint32_t n, const std::string& what) {
    const auto x = Values(n, n);
    Row got(format, planes, n), want(format, planes, n), reference(format, planes, n);
    ops().quantize_row(x.data(), n, got.out);
    Planes(ops(), x, want.out);
    scalar().quantize_row(x.data(), n, reference.out);
    got.ExpectSame(want, what);
    got.ExpectSame(reference, what + ", scalar");
  });
}

// Runs of whole blocks, as threads write them, make the same row.
TEST_P(Fused, RunsOfBlocks) {
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    const uint32_t block = format == ActFormat::kQ8x32 ? 32 : 256, n = 9 * block;
    const auto x = Values(n, 3);
    Row got(format, 2, n), want(format, 2, n);
    ops().quantize_row(x.data(), n, want.out);
    for (const auto& [first, blocks] : {std::pair{4u, 5u}, {0u, 1u}, {1u, 3u}}) {
      ActOut out = got.out;
      out.q += first * block;
      out.scale += first;
      out.sums += first * ActSums(format, block);
      ops().quantize_row(x.data() + first * block, blocks * block, out);
    }
    got.ExpectSame(want, "runs");
  }
}

TEST_P(Fused, NormRow) {
  ForEachShape([&](ActFormat format, uint32_t planes, uint32_t n, const std::string& what) {
    const auto x = Values(n, n, true), add = Gaussian(n, n + 1), w = Gaussian(n, n + 2),
               post = Gaussian(n, n + 3);
    for (const int added : {0, 1, 2}) {
      for (const bool weights : {true, false}) {
        for (const bool keep : {true, false}) {
          std::vector<float> plain = x, y(n), addend = add;
          if (added == 2) ops().rms_norm(add.data(), post.data(), kEps, n, addend.data());
          if (added > 0) ops().add(addend.data(), 1, n, plain.data());
          ops().rms_norm(plain.data(), weights ? w.data() : nullptr, kEps, n, y.data());
          Row want(format, planes, n), got(format, planes, n);
          Planes(ops(), y, want.out);

          std::vector<float> stream = x, kept(n + 1, 12345);
          ops().norm_row({.x = stream.data(),
                          .add = added > 0 ? add.data() : nullptr,
                          .add_norm = added == 2 ? post.data() : nullptr,
                          .w = weights ? w.data() : nullptr,
                          .eps = kEps,
                          .n = n,
                          .y = keep ? kept.data() : nullptr,
                          .out = got.out});
          EXPECT_TRUE(SameBits(stream, plain)) << what << ", added " << added;
          got.ExpectSame(want, what);
          if (keep) {
            EXPECT_EQ(std::memcmp(kept.data(), y.data(), 4 * n), 0) << what;
          }
          EXPECT_EQ(kept[n], 12345);
        }
      }
    }
  });
}

TEST_P(Fused, NormRowInPlace) {
  const uint32_t n = 288;
  const auto x = Gaussian(n, 1), w = Gaussian(n, 2);
  std::vector<float> y(n), in_place = x;
  ops().rms_norm(x.data(), w.data(), kEps, n, y.data());
  Row want(ActFormat::kQ8x32, 2, n), got(ActFormat::kQ8x32, 2, n);
  Planes(ops(), y, want.out);
  ops().norm_row({.x = in_place.data(),
                  .w = w.data(),
                  .eps = kEps,
                  .n = n,
                  .y = in_place.data(),
                  .out = got.out});
  EXPECT_TRUE(SameBits(in_place, y));
  got.ExpectSame(want, "in place");
}

void PlainGlu(const Ops& ops, const GluArgs& a, float* y) {
  if (a.glu == Glu::kSilu) ops.silu_mul(a.gate, a.up, a.n, y);
  if (a.glu == Glu::kGeluTanh) ops.gelu_tanh_mul(a.gate, a.up, a.n, y);
  if (a.glu == Glu::kSwigluClamped) ops.swiglu_clamped_mul(a.gate, a.up, a.limit, a.alpha, a.n, y);
}

TEST_P(Fused, GluRow) {
  ForEachShape([&](ActFormat format, uint32_t planes, uint32_t n, const std::string& what) {
    const auto gate = Values(n, n), up = Gaussian(n, n + 1, 4);
    for (const Glu glu : {Glu::kSilu, Glu::kGeluTanh, Glu::kSwigluClamped}) {
      for (const bool keep : {true, false}) {
        Row want(format, planes, n), got(format, planes, n);
        std::vector<float> y(n), in_place = gate;
        GluArgs args{.glu = glu,
                     .gate = in_place.data(),
                     .up = up.data(),
                     .n = n,
                     .limit = kLimit,
                     .alpha = kAlpha,
                     .y = keep ? in_place.data() : nullptr,
                     .out = got.out};
        PlainGlu(ops(), args, y.data());
        Planes(ops(), y, want.out);
        ops().glu_row(args);
        got.ExpectSame(want, what);
        EXPECT_EQ(std::memcmp(in_place.data(), (keep ? y : gate).data(), 4 * n), 0) << what;
      }
    }
  });
}

SLUICE_EVERY_ISA(Fused);

}  // namespace
}  // namespace sluice::testing
