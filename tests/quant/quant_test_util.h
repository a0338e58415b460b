// Shared by the weight-type tests: golden files, deterministic noise, error measures.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tests/test_data.h"

namespace sluice::quant_test {

inline std::string GoldenDir() { return test::SharedPath("golden/quants/"); }
inline std::string FixtureDir() { return SLUICE_SOURCE_DIR "/tests/fixtures/quants/"; }

inline std::optional<std::vector<uint8_t>> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

inline std::vector<float> AsFloats(const std::vector<uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

// A fixed random sequence (xorshift64*), the same on every platform.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed * 2654435769u + 88172645463325252ull) {}
  uint64_t Bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ull;
  }
  float Uniform() { return float(Bits() >> 40) * 0x1p-24f; }  // [0, 1)
  // Sum of twelve uniforms: mean 0, deviation 1, close enough to a Gaussian.
  float Gauss() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }
  std::vector<float> GaussRow(size_t n, float deviation = 1) {
    std::vector<float> row(n);
    for (float& x : row) x = deviation * Gauss();
    return row;
  }

 private:
  uint64_t state_;
};

// |got - want| / |want|, both as root mean squares.
inline double RelativeRms(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double(got[i]) - want[i]) * (double(got[i]) - want[i]);
    norm += double(want[i]) * want[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace sluice::quant_test
