// Shared pieces of the kernel tests: deterministic random data, encoded rows, activation rows,
// comparisons.
//
// Contract: test code only. Random values come from fixed seeds, so a failure repeats.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "quant/types.h"

namespace sluice::testing {

constexpr WeightType kFloatTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBF16};
constexpr WeightType kIntTypes[] = {WeightType::kQ4_0,   WeightType::kQ4_1,  WeightType::kQ5_0,
                                    WeightType::kQ5_1,   WeightType::kQ8_0,  WeightType::kIQ4_NL,
                                    WeightType::kMXFP4,  WeightType::kQ2_K,  WeightType::kQ3_K,
                                    WeightType::kQ4_K,   WeightType::kQ5_K,  WeightType::kQ6_K,
                                    WeightType::kIQ4_XS, WeightType::kTQ1_0, WeightType::kTQ2_0};

// The types whose grids this build may lack (cmake/codebooks.cmake says so at configuration).
constexpr WeightType kCodebookTypes[] = {
    WeightType::kIQ1_S, WeightType::kIQ1_M,   WeightType::kIQ2_XXS, WeightType::kIQ2_XS,
    WeightType::kIQ2_S, WeightType::kIQ3_XXS, WeightType::kIQ3_S};

// Every type of this build that has an int8 path.
std::vector<WeightType> AllIntTypes();

inline std::vector<float> Gaussian(uint64_t n, uint32_t seed, float sigma = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = dist(rng);
  return x;
}

// How the quants and scales of a random weight are drawn.
enum class Fill { kRandom, kAllLow, kAllHigh };

// Rows of random blocks: quants take every value the format can hold, also those no encoder writes;
// scales are ordinary halves. `pad` bytes in front test odd alignment.
struct Weights {
  WeightType type;
  uint32_t rows, cols;
  uint64_t row_bytes, pad;
  std::vector<uint8_t> bytes;
  const uint8_t* data() const { return bytes.data() + pad; }
};
Weights RandomWeights(WeightType type, uint32_t rows, uint32_t cols, uint32_t seed,
                      Fill fill = Fill::kRandom);

// Quantised (or plain float) activation rows and the storage behind them.
struct Activations {
  ActRows rows;
  std::vector<float> f32, scale;
  std::vector<int8_t> q;
  std::vector<int16_t> sums;
};
Activations MakeActivations(const Ops& ops, ActFormat format, const std::vector<float>& x,
                            uint32_t rows, uint32_t cols);

// out[t][r] for all rows.
std::vector<float> Matmul(const Ops& ops, const Weights& w, const ActRows& x,
                          const float* bias = nullptr);

// The same in double from decoded weights and dequantised activations.
std::vector<double> ReferenceMatmul(const Weights& w, const ActRows& x);

// Largest difference over the largest magnitude of `b`.
template <typename A, typename B>
double RelativeError(const std::vector<A>& a, const std::vector<B>& b) {
  double diff = 0, magnitude = 1e-30;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(double(a[i]) - double(b[i]));
    diff = d > diff || std::isnan(d) ? d : diff;
    magnitude = std::max(magnitude, std::abs(double(b[i])));
  }
  return diff / magnitude;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace sluice::testing
