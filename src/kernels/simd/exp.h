// The exponential over a vector type, for every instruction set.
//
// Contract: relative error below 1.2e-7 (2 ulp) for -87.3 <= x <= 88; 0 below, about 1.65e38 above;
// NaN passes. V is a float vector type: see rows.h. Unnamed namespace: see tiles.h.
#pragma once

namespace sluice {
namespace {

// e^x = 2^n e^r with n = round(x / ln 2); e^r by a degree-6 polynomial on |r| <= ln(2) / 2 (the
// classic single-precision coefficients of the Cephes library's expf).
template <class V>
inline typename V::Vec ExpOf(typename V::Vec x) {
  const auto least = V::Same(-87.33654f);
  const auto in = V::Min(V::Same(88.0f), V::Max(least, x));
  const auto n = V::Round(V::Mul(in, V::Same(1.44269504088896341f)));
  auto r = V::Fnma(n, V::Same(0.693359375f), in);
  r = V::Fnma(n, V::Same(-2.12194440e-4f), r);
  auto p = V::Same(1.9875691500e-4f);
  p = V::Fma(p, r, V::Same(1.3981999507e-3f));
  p = V::Fma(p, r, V::Same(8.3334519073e-3f));
  p = V::Fma(p, r, V::Same(4.1665795894e-2f));
  p = V::Fma(p, r, V::Same(1.6666665459e-1f));
  p = V::Fma(p, r, V::Same(5.0000001201e-1f));
  p = V::Fma(V::Mul(r, r), p, V::Add(r, V::Same(1.0f)));
  return V::ZeroBelow(V::Mul(p, V::Pow2(n)), x, least);
}

// 1 / (1 + e^-x).
template <class V>
inline typename V::Vec SigmoidOf(typename V::Vec x) {
  const auto one = V::Same(1.0f);
  return V::Div(one, V::Add(one, ExpOf<V>(V::Sub(V::Zero(), x))));
}

}  // namespace
}  // namespace sluice
