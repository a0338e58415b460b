// Gated DeltaNet (docs/architectures.md, qwen3_next and qwen3_5): h -> a.tmp.
#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace sluice {
namespace {

constexpr float kL2Eps = 1e-6f;  // fixed, whatever rms eps the config says

struct DeltaShape {
  uint32_t kh, vh, kd, vd, r, keys, values, channels;
  explicit DeltaShape(const DeltaNetConfig& d)
      : kh(d.key_heads),
        vh(d.value_heads),
        kd(d.key_dim),
        vd(d.value_dim),
        r(vh / kh),
        keys(kh * kd),
        values(vh * vd),
        channels(2 * keys + values) {}
};

// One token of the fused projection, grouped by key head (q, k, r values, r gates), to [q, k, v]
// and z.
void Ungroup(const DeltaShape& s, const float* in, float* qkv, float* z) {
  const uint32_t wide = s.r * s.vd;
  for (uint32_t h = 0; h < s.kh; ++h) {
    std::copy_n(in, s.kd, qkv + h * s.kd);
    std::copy_n(in + s.kd, s.kd, qkv + s.keys + h * s.kd);
    std::copy_n(in + 2 * s.kd, wide, qkv + 2 * s.keys + h * wide);
    std::copy_n(in + 2 * s.kd + wide, wide, z + h * wide);
    in += 2 * s.kd + 2 * wide;
  }
}

// The inputs of the recurrence for a tile, each packed [T][...].
struct DeltaInputs {
  float* qkv;    // [T][channels] before the convolution
  float* z;      // [T][values]
  float* beta;   // [T][vh] raw b, then sigmoid(b)
  float* decay;  // [T][vh] raw a, then exp(-exp(A_log) softplus(a + dt))
};

// b and a of one token from the fused projection: per key head r of b, then r of a.
void SplitBa(const DeltaShape& s, const float* ba, float* b, float* a) {
  for (uint32_t h = 0; h < s.kh; ++h) {
    std::copy_n(ba + h * 2 * s.r, s.r, b + h * s.r);
    std::copy_n(ba + h * 2 * s.r + s.r, s.r, a + h * s.r);
  }
}

DeltaInputs ProjectInputs(Forward& f, const LayerWeights& w, const DeltaShape& s) {
  Activations& a = f.a;
  const uint64_t rows = f.t.rows;
  DeltaInputs in{a.q, a.aux, a.aux + rows * s.values, a.aux + rows * (s.values + s.vh)};
  const Matrix& fused = w[MatrixRole::kDeltaQkvz];
  const Matrix& ba = w[MatrixRole::kDeltaBa];
  // Fused outputs land in scratch first: a.q for qkvz (then un-grouped through a.conv),
  // a.router-sized ba in a.tmp.
  if (fused) {
    f.Project(a.h, {{fused, a.q}});
    for (uint64_t i = 0; i < rows; ++i) {
      Ungroup(s, a.q + i * fused.rows, a.conv, in.z + i * s.values);
      std::copy_n(a.conv, s.channels,
                  a.q + i * s.channels);  // row i's packed place never passes its input
    }
  } else {
    f.Project(a.h, {{w[MatrixRole::kDeltaQkv], in.qkv}, {w[MatrixRole::kDeltaZ], in.z}});
  }
  if (ba) {
    f.Project(a.h, {{ba, a.conv}});
    for (uint64_t i = 0; i < rows; ++i) {
      SplitBa(s, a.conv + i * ba.rows, in.beta + i * s.vh, in.decay + i * s.vh);
    }
  } else {
    f.Project(a.h, {{w[MatrixRole::kDeltaBeta], in.beta}, {w[MatrixRole::kDeltaAlpha], in.decay}});
  }
  const float* a_neg = w[VectorRole::kDeltaA];
  const float* dt = w[VectorRole::kDeltaDt];
  for (uint64_t i = 0; i < rows * s.vh; ++i) {
    in.beta[i] = 1 / (1 + std::exp(-in.beta[i]));
    const float x = in.decay[i] + dt[i % s.vh];
    const float softplus = std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    in.decay[i] = std::exp(a_neg[i % s.vh] * softplus);  // the vector holds -exp(A_log)
  }
  return in;
}

void Convolve(Forward& f, const LayerWeights& w, const DeltaShape& s, const DeltaInputs& in) {
  const StateLayout::Layer& layer = f.state_layout().layers[w.layer];
  f.exec().For(s.channels, 256, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = 0; i < f.t.rows; ++i) {
      f.exec().ops().conv_step(w[VectorRole::kConv], f.c.delta.conv_kernel, in.qkv + i * s.channels,
                               f.t.seq[i]->state + layer.conv_offset, begin, end,
                               f.a.conv + i * s.channels);
    }
  });
}

void NormaliseL2(const float* x, uint32_t n, float scale, float* y) {
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1 / std::sqrt(sum + kL2Eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * scale;
}

// q and k of every key head, normalised in place, q scaled by kd^-1/2.
void NormaliseQk(Forward& f, const DeltaShape& s) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.kd));
  f.exec().For(f.t.rows * s.kh, 16, [&](uint32_t begin, uint32_t end) {
    for (uint64_t part = begin; part < end; ++part) {
      float* q = f.a.conv + part / s.kh * s.channels + part % s.kh * s.kd;
      NormaliseL2(q, s.kd, scale, q);
      NormaliseL2(q + s.keys, s.kd, 1, q + s.keys);
    }
  });
}

}  // namespace

void DeltaNetMix(Forward& f, const LayerWeights& w) {
  const DeltaShape s(f.c.delta);
  const StateLayout::Layer& layer = f.state_layout().layers[w.layer];
  const DeltaInputs in = ProjectInputs(f, w, s);
  Convolve(f, w, s, in);
  NormaliseQk(f, s);
  f.exec().For(s.vh, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t head = begin; head < end; ++head) {
      const uint32_t key_head = f.c.delta.tiled_heads ? head % s.kh : head / s.r;
      for (uint64_t i = 0; i < f.t.rows; ++i) {
        const float* u = f.a.conv + i * s.channels;
        float* out = f.a.mixed + i * s.values + head * s.vd;
        DeltaStepArgs args;
        args.state = f.t.seq[i]->state + layer.s_offset + uint64_t{head} * s.kd * s.vd;
        args.q = u + key_head * s.kd;
        args.k = u + s.keys + key_head * s.kd;
        args.v = u + 2 * s.keys + head * s.vd;
        args.beta = in.beta[i * s.vh + head];
        args.decay = in.decay[i * s.vh + head];
        args.kd = s.kd;
        args.vd = s.vd;
        args.out = out;
        f.exec().ops().delta_step(args);
        f.exec().ops().rms_norm(out, w[VectorRole::kDeltaNorm], f.c.rms_eps, s.vd, out);
        f.exec().ops().silu_mul(in.z + i * s.values + head * s.vd, out, s.vd, out);
      }
    }
  });
  f.Project(f.a.mixed, {{w[MatrixRole::kDeltaOut], f.a.tmp}});
}

}  // namespace sluice
