// Scale search without offsets: Q3_K, Q6_K, IQ4_XS, IQ4_NL.
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/search.h"
#include "quant/search_lanes.h"

namespace sluice::quant {
namespace {

// Least-squares scale for the levels that x * inverse snaps to, and the squared error it removes.
struct Trial {
  float scale = 0, gain = 0;
};

template <class L>
Trial TryInverse(const L& levels, const float* x, const float* w, int n, float inverse) {
  V4 xq = Splat(0), qq = Splat(0);
  for (int i = 0; i < n; i += 4) {
    const V4 v = Load4(x + i), q = levels.Snap(v * inverse), wq = Load4(w + i) * q;
    xq += wq * v;
    qq += wq * q;
  }
  const float sum_xq = Sum4(xq), sum_qq = Sum4(qq);
  if (!(sum_qq > 0)) return {};
  return {sum_xq / sum_qq, sum_xq * (sum_xq / sum_qq)};
}

// Squared error under a given scale.
template <class L>
float ErrorAt(const L& levels, const float* x, const float* w, int n, float scale) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  V4 error = Splat(0);
  for (int i = 0; i < n; i += 4) {
    const V4 v = Load4(x + i), rest = v - scale * levels.Snap(v * inverse);
    error += Load4(w + i) * rest * rest;
  }
  return Sum4(error);
}

float SignedExtreme(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// The best free scale of a sub-block. Trials put the extreme element on the end level of either
// sign and up to `reach` levels beyond or short of it; the winner is polished by alternating
// rounding and least squares.
template <class L>
float BestScale(const L& levels, const Levels& range, const float* x, const float* w, int n) {
  const float extreme = SignedExtreme(x, n);
  if (std::fabs(extreme) < kSearchMin) return 0;
  const float span = range.high - range.low;
  const int steps = 4;
  // Few levels gain from clipping the extreme, many levels hardly move.
  const float reach = span < 16 ? 1.6f : range.iq4 ? 24.0f : 2.0f;
  Trial best;
  for (const float end : {range.low, range.high}) {
    for (int k = -steps; k <= steps; ++k) {
      const Trial t =
          TryInverse(levels, x, w, n, (end + reach * float(k) / float(steps)) / extreme);
      if (t.gain > best.gain) best = t;
    }
  }
  for (int k = 0; k < 3 && best.scale != 0; ++k) {
    const Trial t = TryInverse(levels, x, w, n, 1 / best.scale);
    if (!(t.gain > best.gain)) break;
    best = t;
  }
  return best.scale;
}

// Half nearest to v among those not smaller in magnitude: integer scales then never clip.
uint16_t HalfAwayFromZero(float v) {
  uint16_t bits = FloatToHalf(v);
  if (std::fabs(HalfToFloat(bits)) < std::fabs(v)) ++bits;
  return bits;
}

template <class L>
class Symmetric {
 public:
  Symmetric(const SymmetricShape& shape, const L& levels, const float* x, const float* w)
      : shape_(shape), levels_(levels), x_(x), w_(w), n_(kSuperBlock / shape.subs) {}

  bool Fit(SymmetricFit* fit) {
    float free_scale[16], extreme = 0;
    for (int s = 0; s < shape_.subs; ++s) {
      free_scale[s] = BestScale(levels_, shape_.levels, x_ + s * n_, w_ + s * n_, n_);
      if (std::fabs(free_scale[s]) > std::fabs(extreme)) extreme = free_scale[s];
    }
    *fit = SymmetricFit{};
    if (extreme == 0) return true;
    fit->d = HalfAwayFromZero(extreme / float(shape_.scale_min));
    if ((fit->d & 0x7C00) == 0x7C00) return false;
    const float d = HalfToFloat(fit->d);
    for (int s = 0; s < shape_.subs; ++s) {
      fit->scale[s] = Clamp(int(std::lrint(free_scale[s] / d)));
    }
    float error = Settle(fit);
    for (int round = 0; round < 2; ++round) {
      SymmetricFit next = *fit;
      next.d = FloatToHalf(SuperScale(*fit));
      if ((next.d & 0x7C00) == 0x7C00 || (next.d & 0x7FFF) == 0) break;
      const float next_error = Settle(&next);
      if (!(next_error < error)) break;
      error = next_error;
      *fit = next;
    }
    return true;
  }

 private:
  int Clamp(int scale) const { return std::clamp(scale, shape_.scale_min, shape_.scale_max); }

  // Moves each integer scale to the best of its neighbours under fit->d, sets the levels, returns
  // the error.
  float Settle(SymmetricFit* fit) const {
    const float d = HalfToFloat(fit->d);
    float total = 0;
    for (int s = 0; s < shape_.subs; ++s) {
      const float *x = x_ + s * n_, *w = w_ + s * n_;
      int best = fit->scale[s];
      float error = std::numeric_limits<float>::infinity();
      for (int scale = fit->scale[s] - 1; scale <= fit->scale[s] + 1; ++scale) {
        if (scale != Clamp(scale)) continue;
        const float e = ErrorAt(levels_, x, w, n_, d * float(scale));
        if (e < error) error = e, best = scale;
      }
      fit->scale[s] = best;
      total += error;
      const float scale = d * float(best), inverse = scale != 0 ? 1 / scale : 0;
      for (int i = 0; i < n_; i += 4) {
        Store4(fit->level + s * n_ + i, levels_.Snap(Load4(x + i) * inverse));
      }
    }
    return total;
  }

  // Least-squares d for the scales and levels of `fit`.
  float SuperScale(const SymmetricFit& fit) const {
    V4 xa = Splat(0), aa = Splat(0);
    for (int i = 0; i < kSuperBlock; i += 4) {
      const V4 a = Load4(fit.level + i) * float(fit.scale[i / n_]), wa = Load4(w_ + i) * a;
      xa += wa * Load4(x_ + i);
      aa += wa * a;
    }
    const float sum = Sum4(aa);
    return sum > 0 ? Sum4(xa) / sum : 0;
  }

  const SymmetricShape& shape_;
  const L& levels_;
  const float *x_, *w_;
  const int n_;
};

bool InRange(const float* x, int n) { return std::fabs(SignedExtreme(x, n)) <= kSearchMax; }

}  // namespace

void PrepareWeights(const float* importance, int n, float* w) {
  const float floor = 1e-6f;  // a column no sample touched still keeps its shape
  float largest = 0;
  if (importance != nullptr) {
    for (int i = 0; i < n; ++i) {
      if (std::isfinite(importance[i])) largest = std::max(largest, importance[i]);
    }
  }
  for (int i = 0; i < n; ++i) {
    w[i] = 1;
    if (largest > 0) w[i] = std::clamp(importance[i] / largest, floor, 1.0f);
    if (!(w[i] >= floor)) w[i] = floor;  // NaN
  }
}

bool FitSymmetric(const SymmetricShape& shape, const float* x, const float* w, SymmetricFit* fit) {
  if (!InRange(x, kSuperBlock)) return false;
  if (shape.levels.iq4) return Symmetric<Iq4Levels>(shape, Iq4Levels{}, x, w).Fit(fit);
  const UniformLevels levels{Splat(shape.levels.low), Splat(shape.levels.high)};
  return Symmetric<UniformLevels>(shape, levels, x, w).Fit(fit);
}

bool FitIq4Block(const float* x, const float* w, uint16_t* d, float* level) {
  if (!InRange(x, kSmallBlock)) return false;
  const Iq4Levels levels;
  const float scale = BestScale(levels, {-127, 113, true}, x, w, kSmallBlock);
  *d = FloatToHalf(scale);
  if ((*d & 0x7C00) == 0x7C00) return false;
  const float stored = HalfToFloat(*d), inverse = stored != 0 ? 1 / stored : 0;
  for (int i = 0; i < kSmallBlock; i += 4) Store4(level + i, levels.Snap(Load4(x + i) * inverse));
  return true;
}

}  // namespace sluice::quant
