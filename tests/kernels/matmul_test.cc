// Matrix products: every type and instruction set against a double-precision reference, and promise
// 2: the bits of out[t][r] do not depend on how many tokens or rows are computed together.
#include <cstdlib>

#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

struct Case {
  WeightType type;
  bool float_act;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const WeightType type : kFloatTypes) cases.push_back({type, true});
  for (const WeightType type : AllIntTypes()) {
    cases.push_back({type, false});
    cases.push_back({type, true});
  }
  return cases;
}

ActFormat FormatOf(const Case& c) { return c.float_act ? ActFormat::kF32 : ActFormatOf(c.type); }
std::string NameOf(const Case& c) {
  return std::string(InfoOf(c.type).name) + (c.float_act ? " x f32" : " x int8");
}

// A shape that leaves a partial chunk behind: blocks of 32 do not fill the last 256.
uint32_t OddCols(WeightType type) {
  const uint32_t block = InfoOf(type).block_elems;
  return block == 1 ? 301 : block == 32 ? 352 : 768;
}

class EveryIsa : public IsaTest {};

TEST_P(EveryIsa, MatchesDoubleReference) {
  for (const Case& c : AllCases()) {
    const uint32_t rows = 21, tokens = 5, cols = OddCols(c.type);
    const Weights w = RandomWeights(c.type, rows, cols, 7);
    const auto a = MakeActivations(ops(), FormatOf(c), Gaussian(tokens * cols, 8), tokens, cols);
    EXPECT_LT(RelativeError(Matmul(ops(), w, a.rows), ReferenceMatmul(w, a.rows)), 2e-6)
        << NameOf(c);
  }
}

TEST_P(EveryIsa, MatchesScalar) {
  for (const Case& c : AllCases()) {
    for (const Fill fill : {Fill::kRandom, Fill::kAllLow, Fill::kAllHigh}) {
      const uint32_t rows = 19, tokens = 6, cols = OddCols(c.type);
      const Weights w = RandomWeights(c.type, rows, cols, 11, fill);
      std::vector<float> x = Gaussian(tokens * cols, 12);
      // Two tokens of extreme quants: all +127, and alternating signs.
      for (uint32_t i = 0; i < cols; ++i) x[i] = 3, x[cols + i] = i % 2 ? 5 : -5;
      const auto a = MakeActivations(scalar(), FormatOf(c), x, tokens, cols);
      const std::vector<float> bias = Gaussian(rows, 13);
      const auto got = Matmul(ops(), w, a.rows, bias.data());
      const auto want = Matmul(scalar(), w, a.rows, bias.data());
      if (c.float_act) {
        EXPECT_LT(RelativeError(got, want), 1e-5) << NameOf(c);
      } else {
        EXPECT_TRUE(SameBits(got, want)) << NameOf(c) << " fill " << int(fill);
      }
    }
  }
}

TEST_P(EveryIsa, TokensTogetherEqualTokensAlone) {
  for (const Case& c : AllCases()) {
    const uint32_t rows = 11, cols = OddCols(c.type), most = 33;
    const Weights w = RandomWeights(c.type, rows, cols, 21);
    const auto a = MakeActivations(ops(), FormatOf(c), Gaussian(most * cols, 22), most, cols);
    std::vector<float> alone;
    for (uint32_t t = 0; t < most; ++t) {
      ActRows one = a.rows;
      one.rows = 1;
      if (one.f32) one.f32 += t * one.f32_stride;
      if (one.q) {
        one.q += t * one.q_stride;
        one.scale += t * one.scale_stride;
        one.sums += t * one.sums_stride;
      }
      const auto out = Matmul(ops(), w, one);
      alone.insert(alone.end(), out.begin(), out.end());
    }
    for (uint32_t tokens = 1; tokens <= most; ++tokens) {
      ActRows some = a.rows;
      some.rows = tokens;
      EXPECT_TRUE(SameBits(Matmul(ops(), w, some), {alone.begin(), alone.begin() + tokens * rows}))
          << NameOf(c) << " tokens " << tokens;
    }
  }
}

TEST_P(EveryIsa, RowRangesEqualTheWhole) {
  for (const Case& c : AllCases()) {
    const uint32_t rows = 37, cols = OddCols(c.type);
    const Weights w = RandomWeights(c.type, rows, cols, 31);
    for (const uint32_t tokens : {1u, 2u, 7u}) {
      const auto a = MakeActivations(ops(), FormatOf(c), Gaussian(tokens * cols, 32), tokens, cols);
      const auto whole = Matmul(ops(), w, a.rows);
      std::vector<float> pieces(whole.size(), -1e30f);
      const MatmulArgs args{.weights = w.data(),
                            .row_bytes = w.row_bytes,
                            .type = w.type,
                            .x = a.rows,
                            .out = pieces.data(),
                            .out_stride = rows};
      const uint32_t cuts[] = {0, 1, 4, 13, 13, 30, 37};
      for (int i = 0; i + 1 < 7; ++i) ops().matmul(args, cuts[i], cuts[i + 1]);
      EXPECT_TRUE(SameBits(pieces, whole)) << NameOf(c) << " tokens " << tokens;
    }
  }
}

// More tokens than any tile holds, and a row longer than a chunk.
TEST_P(EveryIsa, ManyTokens) {
  for (const Case& c : AllCases()) {
    const uint32_t rows = 9, tokens = 150, cols = InfoOf(c.type).block_elems == 256 ? 512 : 320;
    const Weights w = RandomWeights(c.type, rows, cols, 41);
    const auto a = MakeActivations(ops(), FormatOf(c), Gaussian(tokens * cols, 42), tokens, cols);
    EXPECT_LT(RelativeError(Matmul(ops(), w, a.rows), ReferenceMatmul(w, a.rows)), 2e-6)
        << NameOf(c);
  }
}

// Buffers sized exactly: under a sanitizer a read past the last block is an error here.
TEST_P(EveryIsa, ReadsNothingPastTheEnd) {
  for (const Case& c : AllCases()) {
    for (const uint32_t tokens : {1u, 3u}) {
      const uint32_t cols = InfoOf(c.type).block_elems;
      const Weights random = RandomWeights(c.type, 1, cols, 51);
      Weights w = random;
      w.pad = 0;
      w.bytes.assign(random.data(), random.data() + random.row_bytes);
      w.bytes.shrink_to_fit();
      const auto a = MakeActivations(ops(), FormatOf(c), Gaussian(tokens * cols, 52), tokens, cols);
      EXPECT_LT(RelativeError(Matmul(ops(), w, a.rows), ReferenceMatmul(w, a.rows)), 1e-5)
          << NameOf(c);
    }
  }
}

TEST_P(EveryIsa, BadActivationsReachTheOutput) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const Case& c : AllCases()) {
      const uint32_t rows = 9, cols = 512;
      const Weights w = RandomWeights(c.type, rows, cols, 61);
      std::vector<float> x = Gaussian(2 * cols, 62);
      x[cols + 300] = bad;
      const auto a = MakeActivations(ops(), FormatOf(c), x, 2, cols);
      const auto out = Matmul(ops(), w, a.rows);
      for (uint32_t r = 0; r < rows; ++r) {
        EXPECT_TRUE(std::isfinite(out[r])) << NameOf(c);
        // A weight of exactly zero times infinity is NaN as well, so nothing stays finite.
        EXPECT_FALSE(std::isfinite(out[rows + r])) << NameOf(c);
      }
    }
  }
}

bool SameBitsOrNan(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < b.size(); ++i) {
    if (!(std::isnan(a[i]) && std::isnan(b[i])) && std::memcmp(&a[i], &b[i], 4) != 0) return false;
  }
  return a.size() == b.size();
}

// Every 16 bits of a block, the scales among them, are in turn what no encoder writes: infinities,
// NaNs, subnormals, the largest half, zeros of both signs. A row each.
TEST_P(EveryIsa, OddScalesInEveryPlace) {
  constexpr uint16_t kOdd[] = {0x7c00, 0xfc00, 0x7e00, 0xfdff, 0x0001,
                               0x83ff, 0x7bff, 0xfbff, 0x8000, 0xffff};
  for (const WeightType type : AllIntTypes()) {
    const uint32_t places = InfoOf(type).block_bytes / 2, cols = 2 * InfoOf(type).block_elems;
    const auto odd = static_cast<uint32_t>(std::size(kOdd));
    Weights w = RandomWeights(type, places * odd, cols, 71);
    for (uint32_t row = 0; row < w.rows; ++row) {
      uint8_t* at = w.bytes.data() + w.pad + row * w.row_bytes + 2 * (row / odd);
      std::memcpy(at, &kOdd[row % odd], 2);
    }
    for (const uint32_t tokens : {1u, 3u, 17u}) {
      const auto a =
          MakeActivations(scalar(), ActFormatOf(type), Gaussian(tokens * cols, 72), tokens, cols);
      const auto got = Matmul(ops(), w, a.rows), want = Matmul(scalar(), w, a.rows);
      EXPECT_TRUE(SameBitsOrNan(got, want)) << InfoOf(type).name << " tokens " << tokens;
      if (GetParam() != "scalar") continue;
      size_t bad = 0;
      for (const float v : got) bad += !std::isfinite(v);
      EXPECT_GT(bad, 0u) << InfoOf(type).name << ": no scale was among the places";
    }
  }
}

SLUICE_EVERY_ISA(EveryIsa);

// Set where the processor is known (tools/arm64, tools/x86_cpus): the best table it must be given.
TEST(Ops, TheExpectedTableIsChosen) {
  const char* expected = std::getenv("SLUICE_EXPECT_ISA");
  if (expected == nullptr) GTEST_SKIP() << "SLUICE_EXPECT_ISA names no table";
  EXPECT_STREQ(GetOps()->isa, expected);
}

TEST(Ops, UnknownNamesAreRefused) {
  EXPECT_EQ(GetOps("sparc"), nullptr);
  EXPECT_STREQ(GetOps("scalar")->isa, "scalar");
  EXPECT_STREQ(GetOps()->isa, std::string(AvailableIsas().front()).c_str());
}

TEST(Ops, CodebookTypesAreTested) {
  for (const WeightType type : kCodebookTypes) {
    if (!InfoOf(type).decodes) {
      GTEST_SKIP() << "IQ1, IQ2 and IQ3 kernels are NOT tested: no Python package gguf at build "
                      "time (tools/setup --tests)";
    }
  }
}

TEST(Ops, FormatsOfTypes) {
  EXPECT_EQ(ActFormatOf(WeightType::kQ4_0), ActFormat::kQ8x32);
  EXPECT_EQ(ActFormatOf(WeightType::kQ4_K), ActFormat::kQ8x256);
  EXPECT_EQ(ActFormatOf(WeightType::kBF16), ActFormat::kF32);
  for (const WeightType type : kCodebookTypes) {
    EXPECT_EQ(ActFormatOf(type), InfoOf(type).decodes ? ActFormat::kQ8x256 : ActFormat::kF32);
  }
  EXPECT_EQ(ActScales(ActFormat::kQ8x32, 512), 16u);
  EXPECT_EQ(ActSums(ActFormat::kQ8x256, 512), 32u);
}

}  // namespace
}  // namespace sluice::testing
