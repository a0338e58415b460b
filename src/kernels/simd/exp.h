// The exponential over a vector type and the gated units made of it, for every instruction set.
//
// Contract: ExpOf: relative error below 1.2e-7 (2 ulp) for -87.3 <= x <= 88; 0 below, about 1.65e38
// above; NaN passes. V is a float vector type: see rows.h. Unnamed namespace: see tiles.h.
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

template <class V>
inline typename V::Vec SiluOf(typename V::Vec g, typename V::Vec u) {
  return V::Mul(V::Mul(g, SigmoidOf<V>(g)), u);
}

// 0.5 (1 + tanh t) = sigmoid(2 t), t = sqrt(2 / pi) (x + 0.044715 x^3).
template <class V>
inline typename V::Vec GeluTanhOf(typename V::Vec x, typename V::Vec u) {
  const auto cube = V::Mul(V::Mul(x, x), x);
  const auto inner = V::Fma(cube, V::Same(0.044715f), x);
  const auto twice = V::Mul(inner, V::Same(2 * 0.7978845608028654f));
  return V::Mul(V::Mul(x, SigmoidOf<V>(twice)), u);
}

template <class V>
inline typename V::Vec SwigluClampedOf(typename V::Vec g, typename V::Vec u, float limit,
                                       float alpha) {
  const auto most = V::Same(limit), least = V::Same(-limit);
  g = V::Min(most, g);
  u = V::Max(least, V::Min(most, u));
  const auto s = SigmoidOf<V>(V::Mul(V::Same(alpha), g));
  return V::Mul(V::Mul(g, s), V::Add(u, V::Same(1.0f)));
}

}  // namespace
}  // namespace sluice
