// Scale and minimum search: Q2_K, Q4_K, Q5_K.
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/search.h"
#include "quant/search_lanes.h"

namespace sluice::quant {
namespace {

// x ~ scale * level - min with min >= 0, and the squared error this removes.
struct Line {
  float scale = 0, min = 0, gain = 0;
};

// Sums over a sub-block that no trial changes.
struct Moments {
  float w, wx;
};

Moments MomentsOf(const float* x, const float* w, int n) {
  V4 sw = Splat(0), swx = Splat(0);
  for (int i = 0; i < n; i += 4) {
    sw += Load4(w + i);
    swx += Load4(w + i) * Load4(x + i);
  }
  return {Sum4(sw), Sum4(swx)};
}

// Least-squares line through the levels that (x + min) * inverse snaps to.
Line TryLine(const UniformLevels& levels, const float* x, const float* w, int n, const Moments& m,
             float inverse, float min) {
  V4 sq = Splat(0), sqq = Splat(0), sxq = Splat(0);
  for (int i = 0; i < n; i += 4) {
    const V4 v = Load4(x + i), q = levels.Snap((v + min) * inverse), wq = Load4(w + i) * q;
    sq += wq;
    sqq += wq * q;
    sxq += wq * v;
  }
  const float wq = Sum4(sq), wqq = Sum4(sqq), wxq = Sum4(sxq);
  const float determinant = m.w * wqq - wq * wq;
  if (determinant > 0) {
    const float scale = (m.w * wxq - wq * m.wx) / determinant;
    const float offset = (wqq * m.wx - wq * wxq) / determinant;
    if (offset <= 0 && scale > 0) return {scale, -offset, scale * wxq + offset * m.wx};
  }
  if (!(wqq > 0) || !(wxq > 0)) return {};
  return {wxq / wqq, 0, wxq * (wxq / wqq)};  // the minimum may not be negative: a line through zero
}

// The best free line of a sub-block.
Line BestLine(const UniformLevels& levels, float top, const float* x, const float* w, int n) {
  const auto [lowest, highest] = std::minmax_element(x, x + n);
  const float low = std::min(*lowest, 0.0f), span = *highest - low;
  if (!(span > kSearchMin)) return {0, std::max(-low, 0.0f), 0};
  const Moments m = MomentsOf(x, w, n);
  // Trial spans from slightly stretched to clipped at both ends; few levels gain most from
  // clipping.
  const int steps = 8;
  const float reach = top < 8 ? 1.2f : top < 20 ? 2.0f : 1.6f;
  Line best;
  for (int k = 0; k <= steps; ++k) {
    const float extra = -0.4f + reach * float(k) / float(steps);
    const float inverse = (top + extra) / span;
    // Half of what is clipped comes off the lower end.
    for (const float share : {0.0f, 0.5f, 1.0f}) {
      const Line t =
          TryLine(levels, x, w, n, m, inverse, std::max(0.0f, -low - share * extra / inverse));
      if (t.gain > best.gain) best = t;
    }
  }
  for (int k = 0; k < 4 && best.scale > 0; ++k) {
    const Line t = TryLine(levels, x, w, n, m, 1 / best.scale, best.min);
    if (!(t.gain > best.gain)) break;
    best = t;
  }
  // All below zero and hardly spread: the constant alone may be the better line.
  const float constant = m.wx < 0 ? m.wx * (m.wx / m.w) : 0;
  if (constant > best.gain) return {0, -m.wx / m.w, constant};
  return best;
}

float ErrorAt(const UniformLevels& levels, const float* x, const float* w, int n, float scale,
              float min) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  V4 error = Splat(0);
  for (int i = 0; i < n; i += 4) {
    const V4 v = Load4(x + i) + min, rest = v - scale * levels.Snap(v * inverse);
    error += Load4(w + i) * rest * rest;
  }
  return Sum4(error);
}

// Half nearest to v >= 0 among those not smaller: integer scales then never clip.
uint16_t HalfUp(float v) {
  uint16_t bits = FloatToHalf(v);
  if (HalfToFloat(bits) < v) ++bits;
  return bits;
}

bool IsInfinite(uint16_t half) { return (half & 0x7C00) == 0x7C00; }

class Affine {
 public:
  Affine(const AffineShape& shape, const float* x, const float* w)
      : shape_(shape),
        levels_{Splat(0), Splat(shape.level_max)},
        x_(x),
        w_(w),
        n_(kSuperBlock / shape.subs) {}

  bool Fit(AffineFit* fit) {
    Line lines[16];
    float scale_max = 0, min_max = 0;
    for (int s = 0; s < shape_.subs; ++s) {
      lines[s] = BestLine(levels_, shape_.level_max, x_ + s * n_, w_ + s * n_, n_);
      scale_max = std::max(scale_max, lines[s].scale);
      min_max = std::max(min_max, lines[s].min);
    }
    *fit = AffineFit{};
    fit->d = HalfUp(scale_max / float(shape_.scale_max));
    fit->dmin = HalfUp(min_max / float(shape_.scale_max));
    if (IsInfinite(fit->d) || IsInfinite(fit->dmin)) return false;
    const float d = HalfToFloat(fit->d), dmin = HalfToFloat(fit->dmin);
    for (int s = 0; s < shape_.subs; ++s) {
      fit->scale[s] = d > 0 ? Clamp(int(std::lrint(lines[s].scale / d))) : 0;
      fit->min[s] = dmin > 0 ? Clamp(int(std::lrint(lines[s].min / dmin))) : 0;
    }
    float error = Settle(fit);
    for (int round = 0; round < 2; ++round) {
      AffineFit next = *fit;
      if (!SuperScales(*fit, &next)) break;
      const float next_error = Settle(&next);
      if (!(next_error < error)) break;
      error = next_error;
      *fit = next;
    }
    return true;
  }

 private:
  int Clamp(int scale) const { return std::clamp(scale, 0, shape_.scale_max); }

  // Moves each (scale, min) pair to the best of its neighbours, sets the levels, returns the error.
  float Settle(AffineFit* fit) const {
    const float d = HalfToFloat(fit->d), dmin = HalfToFloat(fit->dmin);
    float total = 0;
    for (int s = 0; s < shape_.subs; ++s) {
      const float *x = x_ + s * n_, *w = w_ + s * n_;
      const int scale0 = fit->scale[s], min0 = fit->min[s];
      float error = std::numeric_limits<float>::infinity();
      for (int scale = Clamp(scale0 - 1); scale <= Clamp(scale0 + 1); ++scale) {
        for (int min = Clamp(min0 - 1); min <= Clamp(min0 + 1); ++min) {
          const float e = ErrorAt(levels_, x, w, n_, d * float(scale), dmin * float(min));
          if (e < error) error = e, fit->scale[s] = scale, fit->min[s] = min;
        }
      }
      total += error;
      const float scale = d * float(fit->scale[s]), min = dmin * float(fit->min[s]);
      const float inverse = scale > 0 ? 1 / scale : 0;
      for (int i = 0; i < n_; i += 4) {
        Store4(fit->level + s * n_ + i, levels_.Snap((Load4(x + i) + min) * inverse));
      }
    }
    return total;
  }

  // Least-squares d and dmin for the integers of `fit`; false when they are not positive halves.
  bool SuperScales(const AffineFit& fit, AffineFit* next) const {
    V4 saa = Splat(0), sab = Splat(0), sbb = Splat(0), sxa = Splat(0), sxb = Splat(0);
    for (int i = 0; i < kSuperBlock; i += 4) {
      const V4 x = Load4(x_ + i), w = Load4(w_ + i);
      const V4 a = Load4(fit.level + i) * float(fit.scale[i / n_]);
      const V4 b = Splat(-float(fit.min[i / n_]));
      saa += w * a * a;
      sab += w * a * b;
      sbb += w * b * b;
      sxa += w * x * a;
      sxb += w * x * b;
    }
    const double aa = Sum4(saa), ab = Sum4(sab), bb = Sum4(sbb), xa = Sum4(sxa), xb = Sum4(sxb);
    const double determinant = aa * bb - ab * ab;
    double d = aa > 0 ? xa / aa : 0, dmin = HalfToFloat(fit.dmin);
    if (determinant > 1e-6 * aa * bb) {
      d = (bb * xa - ab * xb) / determinant;
      dmin = (aa * xb - ab * xa) / determinant;
    }
    if (!(d > 0) || !(dmin >= 0)) return false;
    next->d = FloatToHalf(float(d));
    next->dmin = FloatToHalf(float(dmin));
    return !IsInfinite(next->d) && !IsInfinite(next->dmin) && next->d != 0;
  }

  const AffineShape& shape_;
  const UniformLevels levels_;
  const float *x_, *w_;
  const int n_;
};

}  // namespace

bool FitAffine(const AffineShape& shape, const float* x, const float* w, AffineFit* fit) {
  float extreme = 0;
  for (int i = 0; i < kSuperBlock; ++i) extreme = std::max(extreme, std::fabs(x[i]));
  if (extreme > kSearchMax) return false;
  return Affine(shape, x, w).Fit(fit);
}

}  // namespace sluice::quant
