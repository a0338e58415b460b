#include "model/forward.h"

#include <algorithm>
#include <array>

namespace sluice {

void Forward::Norm(const float* x, const float* w, float* out, uint32_t n, float eps) {
  const float e = eps > 0 ? eps : c.rms_eps;
  exec_.For(t.rows, 8, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) exec_.ops().rms_norm(x + i * n, w, e, n, out + i * n);
  });
}

void Forward::HeadNorm(float* x, uint32_t heads, uint32_t dim, const float* w) {
  exec_.For(t.rows, 8, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = uint64_t{begin} * heads; i < uint64_t{end} * heads; ++i) {
      exec_.ops().rms_norm(x + i * dim, w, c.rms_eps, dim, x + i * dim);
    }
  });
}

void Forward::Project(const float* x, std::initializer_list<To> to) {
  std::array<Projection, 8> jobs;
  size_t n = 0;
  uint32_t cols = 0;
  for (const To& p : to) {
    jobs[n++] = {&p.w, p.out, p.w.rows, p.bias};
    cols = p.w.cols;
  }
  exec_.Project(a.act, x, cols, t.rows, std::span<const Projection>(jobs.data(), n));
}

void Forward::Rope(float* x, uint32_t heads, uint32_t stride, uint32_t layer) {
  const bool sliding = c.kinds[layer] == LayerKind::kSliding && t.cos_sliding != nullptr;
  const RopeConfig& rope = sliding ? c.rope_sliding : c.rope;
  const float* cos = sliding ? t.cos_sliding : t.cos;
  const float* sin = sliding ? t.sin_sliding : t.sin;
  const uint32_t half = rope.dims / 2;
  const uint64_t row = uint64_t{heads} * stride;
  exec_.For(t.rows, 8, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      exec_.ops().rope(x + i * row, heads, stride, rope.dims, rope.adjacent, cos + i * half,
                       sin + i * half);
    }
  });
}

void Forward::Clamp(float* x, uint32_t n, float limit) {
  if (limit <= 0) return;
  for (uint64_t i = 0; i < uint64_t{t.rows} * n; ++i) x[i] = std::clamp(x[i], -limit, limit);
}

void Forward::AddResidual(const float* y, float scale) {
  exec_.For(t.rows, 8, [&](uint32_t begin, uint32_t end) {
    exec_.ops().add(y + uint64_t{begin} * c.hidden, scale, (end - begin) * c.hidden,
                    t.x + uint64_t{begin} * c.hidden);
  });
}

void Forward::StoreKv(uint32_t layer, const float* k, const float* v, uint32_t heads) {
  const KvLayout::Layer& l = kv_.layers[layer];
  const bool latent = c.mla.kv_rank > 0;
  const uint32_t dim_k = latent ? c.mla.kv_rank + c.mla.rope_dim : c.head_dim;
  exec_.For(t.rows, 8, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      uint8_t* page = t.seq[i]->pages[t.pos[i] / kKvPageTokens] + l.offset;
      const uint64_t slot = t.pos[i] % kKvPageTokens;
      for (uint32_t head = 0; head < heads; ++head, page += l.head_stride) {
        exec_.ops().kv_store(kv_.format, false, k + (i * heads + head) * dim_k, dim_k,
                             page + slot * l.k_row);
        if (latent) continue;
        exec_.ops().kv_store(kv_.format, true, v + (i * heads + head) * c.head_dim_v, c.head_dim_v,
                             page + l.v_offset + slot * l.v_row);
      }
    }
  });
}

void Forward::AttendHeads(uint32_t layer, const float* q, uint64_t q_stride, uint32_t dim_k,
                          uint32_t heads, uint32_t kv_heads, const float* sinks, float* out,
                          uint64_t out_stride, uint32_t dim_v) {
  const KvLayout::Layer& l = kv_.layers[layer];
  const uint32_t group = heads / kv_heads;
  const bool sliding = c.kinds[layer] == LayerKind::kSliding;
  exec_.For(t.rows * kv_heads, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t part = begin; part < end; ++part) {
      const uint64_t row = part / kv_heads, head = part % kv_heads;
      AttentionArgs args;
      args.q = q + row * q_stride + head * group * dim_k;
      args.group = group;
      args.dim_k = dim_k;
      args.dim_v = dim_v;
      args.format = kv_.format;
      args.pages = t.seq[row]->pages;
      args.k_offset = l.offset + head * l.head_stride;
      args.v_offset = args.k_offset + l.v_offset;
      args.k_row = l.k_row;
      args.v_row = l.v_row;
      args.last = t.pos[row];
      args.first = sliding && args.last >= c.sliding_window ? args.last - c.sliding_window + 1 : 0;
      args.scale = c.attention_scale;
      args.sinks = sinks == nullptr ? nullptr : sinks + head * group;
      args.out = out + row * out_stride + head * group * dim_v;
      exec_.ops().attention(args);
    }
  });
}

void Forward::Attend(const LayerWeights& w) {
  const uint32_t heads = c.heads[w.layer], kv_heads = c.kv_heads[w.layer];
  StoreKv(w.layer, a.k, a.v, kv_heads);
  AttendHeads(w.layer, a.q, uint64_t{heads} * c.head_dim, c.head_dim, heads, kv_heads,
              w[VectorRole::kSinks], a.mixed, uint64_t{heads} * c.head_dim_v, c.head_dim_v);
}

void Forward::Mlp(const float* h, const LayerWeights& w, const float* gate_bias,
                  const float* up_bias, const float* down_bias, Activation activation, float* out) {
  const Matrix& gate = w[MatrixRole::kGate];
  Project(h, {{gate, a.gate, gate_bias}, {w[MatrixRole::kUp], a.up, up_bias}});
  const auto combine =
      activation == Activation::kSilu ? exec_.ops().silu_mul : exec_.ops().gelu_tanh_mul;
  const uint32_t n = gate.rows;
  exec_.For(t.rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) combine(a.gate + i * n, a.up + i * n, n, a.gate + i * n);
  });
  Project(a.gate, {{w[MatrixRole::kDown], out, down_bias}});
}

}  // namespace sluice
