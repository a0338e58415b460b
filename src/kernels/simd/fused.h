// Rows that are quantised as they are made: the floats of a block never leave the registers (32
// elements) or the first-level cache (256).
//
// Contract: the bits of the plain leaves one after another (ops.h). Q is an instruction set's
// quantiser:
//   V                       its float vectors (rows.h); kVecs of them hold 32 elements
//   Largest                 running largest magnitude: Nothing(), Include(m, v), Bits(m)
//   Round<kRest>(v, factor, q, sums, scale)
//                           stores 32 quants, nearest even of v * factor, and the sums of their
//                           halves; with kRest v becomes v - scale * quant
// and MakeRow calls make(i) for the vector of elements i .. i + kLanes - 1, once each and in order.
// Unnamed namespace: see tiles.h.
#pragma once

#include "kernels/ops.h"
#include "kernels/simd/exp.h"

namespace sluice {
namespace {

// The quantiser's definition is scalar/quantize.cc.
struct Rounding {
  float scale, factor;
  bool usable;
};

inline Rounding RoundingOf(uint32_t largest_bits) {
  constexpr uint32_t kInfBits = 0x7f800000u, kTinyBits = 0x03800000u;  // 2^-120
  const bool usable = largest_bits >= kTinyBits && largest_bits < kInfBits;
  const float largest = __builtin_bit_cast(float, largest_bits);
  const uint32_t none = largest_bits >= kInfBits ? 0x7fc00000u : 0u;
  return {usable ? largest / 127.0f : __builtin_bit_cast(float, none),
          usable ? 127.0f / largest : 0.0f, usable};
}

// 32 elements of a plane.
template <class Q, bool kRest>
inline void RoundGroup(typename Q::V::Vec* v, const Rounding& r, int8_t* q, int16_t* sums) {
  if (r.usable) return Q::template Round<kRest>(v, r.factor, q, sums, r.scale);
  __builtin_memset(q, 0, 32);
  sums[0] = sums[1] = 0;
  if constexpr (kRest) {
    using V = typename Q::V;
    for (uint32_t j = 0; j < Q::kVecs; ++j) {
      v[j] = V::Sub(v[j], V::Mul(V::Same(r.scale), V::Zero()));
    }
  }
}

// One plane of a block whose largest magnitude is known; v becomes the rest and its magnitude.
template <class Q, uint32_t kGroups, bool kRest>
inline void PutPlane(typename Q::V::Vec (*v)[Q::kVecs], typename Q::Largest* largest, int8_t* q,
                     float* scale, int16_t* sums) {
  const Rounding r = RoundingOf(Q::Bits(*largest));
  *scale = r.scale;
  if constexpr (kRest) *largest = Q::Nothing();
  for (uint32_t g = 0; g < kGroups; ++g) {
    int16_t halves[2];
    RoundGroup<Q, kRest>(v[g], r, q + 32 * g, halves);
    if constexpr (kGroups == 1) {
      *sums = static_cast<int16_t>(halves[0] + halves[1]);
    } else {
      sums[2 * g] = halves[0];
      sums[2 * g + 1] = halves[1];
    }
    if constexpr (kRest) {
      for (uint32_t j = 0; j < Q::kVecs; ++j) *largest = Q::Include(*largest, v[g][j]);
    }
  }
}

template <class Q, uint32_t kGroups, bool kTwo, class F>
inline void PutRow(uint32_t n, const ActOut& out, F make) {
  constexpr uint32_t kBlock = 32 * kGroups, kSums = kGroups == 1 ? 1 : 2 * kGroups;
  using V = typename Q::V;
  for (uint32_t at = 0, b = 0; at < n; at += kBlock, ++b) {
    typename V::Vec v[kGroups][Q::kVecs];
    typename Q::Largest largest = Q::Nothing();
    for (uint32_t g = 0; g < kGroups; ++g) {
      for (uint32_t j = 0; j < Q::kVecs; ++j) {
        v[g][j] = make(at + 32 * g + j * V::kLanes);
        largest = Q::Include(largest, v[g][j]);
      }
    }
    PutPlane<Q, kGroups, kTwo>(v, &largest, out.q + at, out.scale + b, out.sums + b * kSums);
    if constexpr (kTwo) {
      PutPlane<Q, kGroups, false>(v, &largest, out.q + out.q_plane + at,
                                  out.scale + out.scale_plane + b,
                                  out.sums + out.sums_plane + b * kSums);
    }
  }
}

// A row of a quantised format, n a multiple of its block.
template <class Q, class F>
inline void MakeRow(uint32_t n, const ActOut& out, F make) {
  const bool two = out.planes == 2;
  if (out.format == ActFormat::kQ8x32) {
    return two ? PutRow<Q, 1, true>(n, out, make) : PutRow<Q, 1, false>(n, out, make);
  }
  return two ? PutRow<Q, 8, true>(n, out, make) : PutRow<Q, 8, false>(n, out, make);
}

template <class Q>
void QuantizeRowOf(const float* x, uint32_t n, const ActOut& out) {
  if (out.format == ActFormat::kF32) return;
  MakeRow<Q>(n, out, [=](uint32_t i) { return Q::V::Load(x + i); });
}

// Its floats are kept as well where y is not null.
template <class Q, class F>
inline void MakeAndKeep(uint32_t n, float* y, const ActOut& out, F make) {
  if (y == nullptr) return MakeRow<Q>(n, out, make);
  MakeRow<Q>(n, out, [=](uint32_t i) {
    const typename Q::V::Vec v = make(i);
    Q::V::Store(y + i, v);
    return v;
  });
}

// x += add * scale * w
template <class V>
inline void AddNormed(const float* add, float scale, const float* w, uint32_t n, float* x) {
  const auto s = V::Same(scale);
  uint32_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    const auto v = V::Mul(V::Mul(V::Load(add + i), s), V::Load(w + i));
    V::Store(x + i, V::Add(V::Load(x + i), v));
  }
  for (; i < n; ++i) x[i] = x[i] + add[i] * scale * w[i];
}

// With the set's plain leaves and the sum of squares of its norm.
template <class Q, auto kSumOfSquares, auto kAdd, auto kRmsNorm>
void NormRowOf(const NormArgs& a) {
  using V = typename Q::V;
  const auto scale_of = [&](const float* x) {
    return 1.0f / __builtin_sqrtf(kSumOfSquares(x, a.n) / static_cast<float>(a.n) + a.eps);
  };
  if (a.add != nullptr && a.add_norm != nullptr) {
    AddNormed<V>(a.add, scale_of(a.add), a.add_norm, a.n, a.x);
  } else if (a.add != nullptr) {
    kAdd(a.add, 1, a.n, a.x);
  }
  const float *x = a.x, *w = a.w;
  if (a.out.format == ActFormat::kF32) {
    if (a.y != nullptr) kRmsNorm(x, w, a.eps, a.n, a.y);
    return;
  }
  const auto s = V::Same(scale_of(x));
  if (w == nullptr) {
    return MakeAndKeep<Q>(a.n, a.y, a.out, [=](uint32_t i) { return V::Mul(V::Load(x + i), s); });
  }
  MakeAndKeep<Q>(a.n, a.y, a.out,
                 [=](uint32_t i) { return V::Mul(V::Mul(V::Load(x + i), s), V::Load(w + i)); });
}

template <class Q, auto kSiluMul, auto kGeluTanhMul, auto kSwigluClampedMul>
void GluRowOf(const GluArgs& a) {
  using V = typename Q::V;
  const float limit = a.limit, alpha = a.alpha;
  if (a.out.format == ActFormat::kF32) {
    if (a.y == nullptr) return;
    if (a.glu == Glu::kSilu) return kSiluMul(a.gate, a.up, a.n, a.y);
    if (a.glu == Glu::kGeluTanh) return kGeluTanhMul(a.gate, a.up, a.n, a.y);
    return kSwigluClampedMul(a.gate, a.up, limit, alpha, a.n, a.y);
  }
  const float *gate = a.gate, *up = a.up;
  switch (a.glu) {
    case Glu::kSilu:
      return MakeAndKeep<Q>(a.n, a.y, a.out, [=](uint32_t i) {
        return SiluOf<V>(V::Load(gate + i), V::Load(up + i));
      });
    case Glu::kGeluTanh:
      return MakeAndKeep<Q>(a.n, a.y, a.out, [=](uint32_t i) {
        return GeluTanhOf<V>(V::Load(gate + i), V::Load(up + i));
      });
    case Glu::kSwigluClamped:
      return MakeAndKeep<Q>(a.n, a.y, a.out, [=](uint32_t i) {
        return SwigluClampedOf<V>(V::Load(gate + i), V::Load(up + i), limit, alpha);
      });
  }
}

}  // namespace
}  // namespace sluice
