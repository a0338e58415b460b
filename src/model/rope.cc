#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {
namespace {

double Llama3Frequency(double inverse, const RopeConfig& c) {
  const double wavelength = 2 * std::numbers::pi / inverse, original = c.original_context;
  if (wavelength < original / c.high_freq_factor) return inverse;
  if (wavelength > original / c.low_freq_factor) return inverse / c.factor;
  const double s =
      (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - s) * inverse / c.factor + s * inverse;
}

// The index at which a pair makes `rotations` turns within the original context.
double YarnIndex(double rotations, const RopeConfig& c) {
  return c.dims * std::log(c.original_context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(c.theta)));
}

void ScaleYarn(const RopeConfig& c, std::vector<double>* inverse) {
  double low = YarnIndex(c.beta_fast, c), high = YarnIndex(c.beta_slow, c);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(c.dims) - 1);
  if (low == high) high += 0.001;
  for (size_t j = 0; j < inverse->size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    double& inv = (*inverse)[j];
    inv = inv / c.factor * ramp + inv * (1 - ramp);
  }
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config, const std::vector<float>& divisors)
    : inverse_(config.dims / 2), attn_factor_(config.attn_factor) {
  for (size_t j = 0; j < inverse_.size(); ++j) {
    double inverse =
        std::pow(static_cast<double>(config.theta), -2.0 * static_cast<double>(j) / config.dims);
    if (config.scaling == RopeScaling::kLinear) inverse /= config.factor;
    if (config.scaling == RopeScaling::kLlama3) inverse = Llama3Frequency(inverse, config);
    if (j < divisors.size()) inverse /= divisors[j];
    inverse_[j] = inverse;
  }
  if (config.scaling == RopeScaling::kYarn) ScaleYarn(config, &inverse_);
}

void RopeTable::Fill(uint32_t position, float* cos, float* sin) const {
  for (size_t j = 0; j < inverse_.size(); ++j) {
    const float angle = static_cast<float>(position * inverse_[j]);
    cos[j] = std::cos(angle) * attn_factor_;
    sin[j] = std::sin(angle) * attn_factor_;
  }
}

}  // namespace sluice
