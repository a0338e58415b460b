// Gated DeltaNet (docs/architectures.md, qwen3_next and qwen3_5).
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

// All projections of h in one region; fused outputs land in scratch first.
void ProjectRaw(Forward& f, const LayerWeights& w, const DeltaShape& s, const DeltaInputs& in) {
  using M = MatrixRole;
  Activations& a = f.a;
  const uint64_t rows = f.t.rows;
  const Matrix &fused = w[M::kDeltaQkvz], &ba = w[M::kDeltaBa];
  const Operand h = f.Normed(
      w, VectorRole::kAttnNorm,
      {M::kDeltaQkvz, M::kDeltaBa, M::kDeltaQkv, M::kDeltaZ, M::kDeltaBeta, M::kDeltaAlpha});
  if (fused && ba) {
    f.Project(h, {{fused, a.q}, {ba, a.mixed}});
  } else if (fused) {
    f.Project(h, {{fused, a.q}, {w[M::kDeltaBeta], in.beta}, {w[M::kDeltaAlpha], in.decay}});
  } else if (ba) {
    f.Project(h, {{w[M::kDeltaQkv], in.qkv}, {w[M::kDeltaZ], in.z}, {ba, a.mixed}});
  } else {
    f.Project(h, {{w[M::kDeltaQkv], in.qkv},
                  {w[M::kDeltaZ], in.z},
                  {w[M::kDeltaBeta], in.beta},
                  {w[M::kDeltaAlpha], in.decay}});
  }
  for (uint64_t i = 0; i < rows && fused; ++i) {
    Ungroup(s, a.q + i * fused.rows, a.conv, in.z + i * s.values);
    // Row i's packed place never passes its input.
    std::copy_n(a.conv, s.channels, a.q + i * s.channels);
  }
  for (uint64_t i = 0; i < rows && ba; ++i) {
    SplitBa(s, a.mixed + i * ba.rows, in.beta + i * s.vh, in.decay + i * s.vh);
  }
}

DeltaInputs ProjectInputs(Forward& f, const LayerWeights& w, const DeltaShape& s) {
  Activations& a = f.a;
  const uint64_t rows = f.t.rows;
  const DeltaInputs in{a.q, a.aux, a.aux + rows * s.values, a.aux + rows * (s.values + s.vh)};
  ProjectRaw(f, w, s, in);
  const float* a_neg = w[VectorRole::kDeltaA];
  const float* dt = w[VectorRole::kDeltaDt];
  f.exec().For(f.t.rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = uint64_t{begin} * s.vh; i < uint64_t{end} * s.vh; ++i) {
      in.beta[i] = 1 / (1 + std::exp(-in.beta[i]));
      const float x = in.decay[i] + dt[i % s.vh];
      const float softplus = std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
      in.decay[i] = std::exp(a_neg[i % s.vh] * softplus);  // the vector holds -exp(A_log)
    }
  });
  return in;
}

void NormaliseL2(const float* x, uint32_t n, float scale, float* y) {
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1 / std::sqrt(sum + kL2Eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * scale;
}

// A layer at work: a key head and its value heads share nothing with the others.
class DeltaHeads {
 public:
  DeltaHeads(Forward& f, const LayerWeights& w, const DeltaShape& s, const DeltaInputs& in)
      : f_(f),
        ops_(f.exec().ops()),
        w_(w),
        s_(s),
        in_(in),
        layer_(f.state_layout().layers[w.layer]),
        format_(f.exec().FormatFor(w[MatrixRole::kDeltaOut].type)),
        fits_(format_ != ActFormat::kF32 && s.vd % (format_ == ActFormat::kQ8x32 ? 32 : 256) == 0) {
  }

  // The tile's tokens in order, through key head `head` and the value heads that share it.
  void Run(uint32_t head) const {
    Convolve(head * s_.kd, s_.kd);
    Convolve(s_.keys + head * s_.kd, s_.kd);
    const float scale = 1 / std::sqrt(static_cast<float>(s_.kd));
    for (uint64_t i = 0; i < f_.t.rows; ++i) {
      float* q = f_.a.conv + i * s_.channels + head * s_.kd;
      NormaliseL2(q, s_.kd, scale, q);  // q is also scaled by kd^-1/2
      NormaliseL2(q + s_.keys, s_.kd, 1, q + s_.keys);
    }
    for (uint32_t j = 0; j < s_.r; ++j)
      RunValues(head, f_.c.delta.tiled_heads ? head + j * s_.kh : head * s_.r + j);
  }

  Operand Out() const {
    const Activations& a = f_.a;
    if (!fits_)
      return f_.exec().Quantize(a.act, a.mixed, s_.values, f_.t.rows, s_.values,
                                FormatBit(format_));
    return {a.mixed, s_.values, f_.t.rows, s_.values, &a.act, 0, FormatBit(format_)};
  }

 private:
  void Convolve(uint32_t first, uint32_t n) const {
    for (uint64_t i = 0; i < f_.t.rows; ++i) {
      ops_.conv_step(w_[VectorRole::kConv], f_.c.delta.conv_kernel, in_.qkv + i * s_.channels,
                     f_.t.seq[i]->state + layer_.conv_offset, first, first + n,
                     f_.a.conv + i * s_.channels);
    }
  }

  void RunValues(uint32_t key_head, uint32_t head) const {
    Convolve(2 * s_.keys + head * s_.vd, s_.vd);
    for (uint64_t i = 0; i < f_.t.rows; ++i) {
      const float* u = f_.a.conv + i * s_.channels;
      float* out = f_.a.mixed + i * s_.values + head * s_.vd;
      DeltaStepArgs args;
      args.state = f_.t.seq[i]->state + layer_.s_offset + uint64_t{head} * s_.kd * s_.vd;
      args.q = u + key_head * s_.kd;
      args.k = u + s_.keys + key_head * s_.kd;
      args.v = u + 2 * s_.keys + head * s_.vd;
      args.beta = in_.beta[i * s_.vh + head];
      args.decay = in_.decay[i * s_.vh + head];
      args.kd = s_.kd;
      args.vd = s_.vd;
      args.out = out;
      ops_.delta_step(args);
      ops_.rms_norm(out, w_[VectorRole::kDeltaNorm], f_.c.rms_eps, s_.vd, out);
      GluArgs gated{.gate = in_.z + i * s_.values + head * s_.vd, .up = out, .n = s_.vd, .y = out};
      if (fits_) gated.out = f_.exec().Out(format_, f_.a.act, i, s_.values, head * s_.vd);
      ops_.glu_row(gated);
    }
  }

  Forward& f_;
  const Ops& ops_;
  const LayerWeights& w_;
  const DeltaShape& s_;
  const DeltaInputs& in_;
  const StateLayout::Layer& layer_;
  ActFormat format_;
  bool fits_;  // a value head is whole blocks: quantised where it is
};

}  // namespace

void DeltaNetMix(Forward& f, const LayerWeights& w) {
  const DeltaShape s(f.c.delta);
  const DeltaInputs in = ProjectInputs(f, w, s);
  const DeltaHeads heads(f, w, s, in);
  f.exec().For(s.kh, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t head = begin; head < end; ++head) heads.Run(head);
  });
  f.AddProjected(heads.Out(), w[MatrixRole::kDeltaOut]);
}

}  // namespace sluice
