// What tiles of sixteen rows and tokens can get wrong: shapes that fill or just miss them, strides,
// and reads beyond the weights or the activations. For every instruction set, emulated ones
// included.
#include <sys/mman.h>

#include <span>

#include "base/cpu.h"
#include "tests/kernels/amx_emulator.h"
#include "tests/kernels/isa_test.h"
#include "tests/kernels/support.h"

namespace sluice::testing {
namespace {

class Tiles : public IsaTest {};

// Scalar and `ops` on the same rows [begin, end); what lies between the rows of the output stays.
void ExpectSameBits(const Ops& ops, const Ops& scalar, const Weights& w, const ActRows& x,
                    uint32_t begin, uint32_t end, const std::string& what) {
  const uint64_t out_stride = w.rows + 3;
  std::vector<float> got(x.rows * out_stride, 12345), want = got;
  MatmulArgs args{.weights = w.data(),
                  .row_bytes = w.row_bytes,
                  .type = w.type,
                  .x = x,
                  .out = got.data(),
                  .out_stride = out_stride};
  ops.matmul(args, begin, end);
  args.out = want.data();
  scalar.matmul(args, begin, end);
  EXPECT_TRUE(SameBits(got, want)) << InfoOf(w.type).name << " " << what;
}

// Activations apart by more than their length: all quants +127 or -127 in the first two tokens.
Activations Spaced(const Ops& scalar, WeightType type, uint32_t tokens, uint32_t cols,
                   uint32_t seed) {
  const uint32_t stride = cols + 256;
  std::vector<float> x = Gaussian(uint64_t{tokens} * stride, seed);
  for (uint32_t i = 0; i < cols; ++i) {
    x[i] = 3;
    if (tokens > 1) x[stride + i] = -5;
  }
  Activations a = MakeActivations(scalar, ActFormatOf(type), x, tokens, stride);
  a.rows.cols = cols;
  return a;
}

struct Shape {
  uint32_t rows, tokens;
};

TEST_P(Tiles, SameBitsAsScalar) {
  const Shape shapes[] = {{16, 16}, {17, 17}, {15, 16}, {16, 15}, {31, 33},
                          {33, 5},  {35, 9},  {64, 32}, {18, 130}};
  const Fill fills[] = {Fill::kRandom, Fill::kAllLow, Fill::kAllHigh};
  uint32_t seed = 100;
  for (const WeightType type : AllIntTypes()) {
    const uint32_t cols = InfoOf(type).block_elems == 32 ? 288 : 512;
    for (const Shape& s : shapes) {
      const Weights w = RandomWeights(type, s.rows, cols, seed, fills[seed % 3]);
      const Activations a = Spaced(scalar(), type, s.tokens, cols, seed + 1);
      const std::string what = std::to_string(s.rows) + " rows, " + std::to_string(s.tokens);
      ExpectSameBits(ops(), scalar(), w, a.rows, 0, s.rows, what);
      ++seed;
    }
  }
}

TEST_P(Tiles, RangesWithinTheRows) {
  for (const WeightType type : AllIntTypes()) {
    const uint32_t rows = 70, cols = 256;
    const Weights w = RandomWeights(type, rows, cols, 7);
    for (const uint32_t tokens : {1u, 18u}) {
      const Activations a = Spaced(scalar(), type, tokens, cols, 8);
      for (const auto& [begin, end] : {std::pair{3u, 3u}, {5u, 6u}, {1u, 17u}, {2u, 69u}}) {
        ExpectSameBits(ops(), scalar(), w, a.rows, begin, end,
                       std::to_string(begin) + " to " + std::to_string(end));
      }
    }
  }
}

// A block that held NaN has a scale of NaN: its token is poisoned, the others keep their bits.
TEST_P(Tiles, NanStaysWithItsToken) {
  for (const WeightType type : AllIntTypes()) {
    const uint32_t rows = 16, tokens = 17, cols = 512;
    const Weights w = RandomWeights(type, rows, cols, 9);
    Activations a = Spaced(scalar(), type, tokens, cols, 10);
    const auto clean = Matmul(scalar(), w, a.rows);
    a.scale[4 * a.rows.scale_stride + 1] = NAN;
    const auto got = Matmul(ops(), w, a.rows);
    for (uint32_t i = 0; i < got.size(); ++i) {
      if (i / rows == 4) {
        EXPECT_TRUE(std::isnan(got[i])) << InfoOf(type).name;
      } else {
        EXPECT_EQ(got[i], clean[i]) << InfoOf(type).name;
      }
    }
  }
}

// A copy of some bytes that ends where memory ends (or begins where it begins).
class Fenced {
 public:
  Fenced(const void* bytes, uint64_t n, bool at_end) {
    const uint64_t page = PageBytes(), inner = (n + page - 1) / page * page;
    size_ = inner + 2 * page;
    void* base = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return;
    base_ = static_cast<uint8_t*>(base);
    mprotect(base_ + page, inner, PROT_READ | PROT_WRITE);
    data_ = base_ + page + (at_end ? inner - n : 0);
    std::memcpy(data_, bytes, n);
  }
  ~Fenced() {
    if (base_ != nullptr) munmap(base_, size_);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  uint8_t *base_ = nullptr, *data_ = nullptr;
  uint64_t size_ = 0;
};

template <typename T>
Fenced Fence(const std::vector<T>& v, bool at_end) {
  return Fenced(v.data(), v.size() * sizeof(T), at_end);
}

void MatmulInFences(const Ops& ops, const Weights& w, const Activations& a, bool at_end) {
  const Fenced weights(w.data(), w.rows * w.row_bytes, at_end);
  const Fenced f32 = Fence(a.f32, at_end), q = Fence(a.q, at_end), scale = Fence(a.scale, at_end),
               sums = Fence(a.sums, at_end);
  ActRows x = a.rows;
  if (x.format == ActFormat::kF32) {
    x.f32 = f32.as<float>();
  } else {
    x.q = q.as<int8_t>();
    x.scale = scale.as<float>();
    x.sums = sums.as<int16_t>();
  }
  std::vector<float> out(uint64_t{x.rows} * w.rows);
  const MatmulArgs args{.weights = weights.as<uint8_t>(),
                        .row_bytes = w.row_bytes,
                        .type = w.type,
                        .x = x,
                        .out = out.data(),
                        .out_stride = w.rows};
  ops.matmul(args, 0, w.rows);
  EXPECT_TRUE(SameBits(out, Matmul(ops, w, a.rows))) << InfoOf(w.type).name;
}

// A byte read outside of the arguments' own is a crash here.
TEST_P(Tiles, ReadsStayInside) {
  for (const bool at_end : {true, false}) {
    for (const Shape& s : {Shape{1, 1}, {9, 1}, {9, 4}, {17, 7}, {17, 18}}) {
      for (const WeightType type : AllIntTypes()) {
        const uint32_t cols = InfoOf(type).block_elems * 3;
        const Weights w = RandomWeights(type, s.rows, cols, 15);
        const auto x = Gaussian(uint64_t{s.tokens} * cols, 16);
        for (const ActFormat format : {ActFormatOf(type), ActFormat::kF32}) {
          MatmulInFences(ops(), w, MakeActivations(scalar(), format, x, s.tokens, cols), at_end);
        }
      }
      for (const WeightType type : kFloatTypes) {
        const uint32_t cols = 77;
        const Weights w = RandomWeights(type, s.rows, cols, 17);
        const auto x = Gaussian(uint64_t{s.tokens} * cols, 18);
        const auto a = MakeActivations(scalar(), ActFormat::kF32, x, s.tokens, cols);
        MatmulInFences(ops(), w, a, at_end);
      }
    }
  }
}

SLUICE_EVERY_ISA(Tiles);

TEST(Emulated, TablesAreTested) {
  if (EmulatedNames().empty()) {
    GTEST_SKIP()
        << "AVX-512, AVX-VNNI and AMX kernels are NOT tested in software: no SIMDe headers "
           "(tools/setup --tests installs libsimde-dev) or no AVX2 here";
  }
  EXPECT_EQ(EmulatedNames().size(), 3u);
}

// Sixteen tokens and sixteen rows are what tiles are used for, and none stay behind: the operating
// system would save them at every switch.
TEST(Emulated, TilesAreUsedAndReleased) {
  const Ops* amx = EmulatedOps("emulated_amx");
  if (amx == nullptr) GTEST_SKIP() << "no SIMDe headers or no AVX2";
  const Ops& scalar = *GetOps("scalar");
  for (const WeightType type : kIntTypes) {
    const uint32_t cols = 256;
    for (const Shape& s : {Shape{15, 16}, {16, 15}, {16, 16}, {40, 20}}) {
      const Weights w = RandomWeights(type, s.rows, cols, 19);
      const Activations a = Spaced(scalar, type, s.tokens, cols, 20);
      const uint64_t before = AmxDots();
      Matmul(*amx, w, a.rows);
      EXPECT_EQ(AmxDots() > before, s.rows >= 16 && s.tokens >= 16) << InfoOf(type).name;
      EXPECT_FALSE(AmxIsConfigured()) << InfoOf(type).name;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
