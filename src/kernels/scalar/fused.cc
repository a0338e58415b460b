// Rows made and quantised in one pass: the definition is the plain leaves one after another.
#include <cmath>

#include "kernels/scalar/lanes.h"
#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

constexpr uint32_t kBlockMax = 256;

uint32_t BlockOf(ActFormat format) { return format == ActFormat::kQ8x32 ? 32 : kBlockMax; }

// The block that begins at element `at`, in every plane.
void PutBlock(const float* x, uint32_t at, const ActOut& out) {
  const uint32_t block = BlockOf(out.format);
  const uint64_t b = at / block, s = b * ActSums(out.format, block);
  Quantize(out.format, x, block, out.q + at, out.scale + b, out.sums + s);
  if (out.planes == 1) return;
  float rest[kBlockMax];
  for (uint32_t i = 0; i < block; ++i) {
    rest[i] = x[i] - out.scale[b] * static_cast<float>(out.q[at + i]);
  }
  Quantize(out.format, rest, block, out.q + out.q_plane + at, out.scale + out.scale_plane + b,
           out.sums + out.sums_plane + s);
}

// Calls make(first, n, y) for pieces of a row and quantises what it writes to y.
template <class F>
void PutRow(uint32_t n, float* y, const ActOut& out, F make) {
  if (out.format == ActFormat::kF32) {
    if (y != nullptr) make(0u, n, y);
    return;
  }
  float piece[kBlockMax];
  const uint32_t block = BlockOf(out.format);
  for (uint32_t at = 0; at < n; at += block) {
    float* to = y == nullptr ? piece : y + at;
    make(at, block, to);
    PutBlock(to, at, out);
  }
}

float NormScale(const float* x, float eps, uint32_t n) {
  float lanes[8] = {};
  DotLanes(x, x, n, lanes);
  return 1.0f / std::sqrt(FoldLanes(lanes) / static_cast<float>(n) + eps);
}

}  // namespace

void QuantizeRow(const float* x, uint32_t n, const ActOut& out) {
  if (out.format == ActFormat::kF32) return;
  for (uint32_t at = 0; at < n; at += BlockOf(out.format)) PutBlock(x + at, at, out);
}

void NormRow(const NormArgs& a) {
  if (a.add != nullptr && a.add_norm != nullptr) {
    const float scale = NormScale(a.add, a.eps, a.n);
    for (uint32_t i = 0; i < a.n; ++i) a.x[i] = a.x[i] + a.add[i] * scale * a.add_norm[i];
  } else if (a.add != nullptr) {
    Add(a.add, 1, a.n, a.x);
  }
  if (a.y == nullptr && a.out.format == ActFormat::kF32) return;
  const float scale = NormScale(a.x, a.eps, a.n);
  PutRow(a.n, a.y, a.out, [&](uint32_t first, uint32_t n, float* y) {
    for (uint32_t i = 0; i < n; ++i) {
      const float v = a.x[first + i] * scale;
      y[i] = a.w == nullptr ? v : v * a.w[first + i];
    }
  });
}

void GluRow(const GluArgs& a) {
  PutRow(a.n, a.y, a.out, [&](uint32_t first, uint32_t n, float* y) {
    const float *gate = a.gate + first, *up = a.up + first;
    switch (a.glu) {
      case Glu::kSilu:
        return SiluMul(gate, up, n, y);
      case Glu::kGeluTanh:
        return GeluTanhMul(gate, up, n, y);
      case Glu::kSwigluClamped:
        return SwigluClampedMul(gate, up, a.limit, a.alpha, n, y);
    }
  });
}

}  // namespace sluice::scalar
