#include "model/forward.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// Rows a thread takes at least; fewer than twice as many stay with the owner.
constexpr uint32_t kRowGrain = 4;
// Rows that share what attention loads of a page.
constexpr uint32_t kAttendRowsMax = 16;

}  // namespace

uint32_t Forward::Formats(const LayerWeights& w, std::initializer_list<MatrixRole> roles) const {
  uint32_t formats = 0;
  for (MatrixRole role : roles) {
    if (w[role]) formats |= FormatBit(exec_.FormatFor(w[role].type));
  }
  return formats;
}

Operand Forward::Normed(const LayerWeights& w, VectorRole norm,
                        std::initializer_list<MatrixRole> roles, const Residual& residual) {
  return Normed(w[norm], Formats(w, roles), a.h, a.act, 0, residual);
}

Operand Forward::Normed(const float* norm, uint32_t formats, float* y, const ActBuffer& act,
                        uint64_t first, const Residual& residual) {
  exec_.For(t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t at = i * c.hidden;
      const NormArgs args{.x = t.x + at,
                          .add = residual.y == nullptr ? nullptr : residual.y + at,
                          .add_norm = residual.norm,
                          .w = norm,
                          .eps = c.rms_eps,
                          .n = c.hidden,
                          .y = y + at};
      exec_.NormRow(args, act, first + i, formats);
    }
  });
  return {y, c.hidden, t.rows, c.hidden, &act, first, formats};
}

void Forward::Norm(const float* x, const float* w, float* out, uint32_t n, float eps) {
  const float e = eps > 0 ? eps : c.rms_eps;
  exec_.For(t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) exec_.ops().rms_norm(x + i * n, w, e, n, out + i * n);
  });
}

void Forward::Project(const Operand& x, std::initializer_list<To> to) {
  std::array<Projection, 8> jobs;
  size_t n = 0;
  for (const To& p : to) jobs[n++] = {&p.w, p.out, p.w.rows, p.bias};
  exec_.Project(x, std::span<const Projection>(jobs.data(), n));
}

void Forward::Project(const float* x, std::initializer_list<To> to) {
  const uint32_t cols = to.begin()->w.cols;
  uint32_t formats = 0;
  for (const To& p : to) formats |= FormatBit(exec_.FormatFor(p.w.type));
  Project(exec_.Quantize(a.act, x, cols, t.rows, cols, formats), to);
}

void Forward::AddProjected(const Operand& in, const Matrix& w, const float* bias, float scale) {
  MatmulArgs args = exec_.ArgsOf(w, in, bias);
  args.out_stride = c.hidden;
  const MatmulJob job{args, w.rows, t.x, scale};
  exec_.Run({&job, 1});
}

void Forward::AddResidual(const Residual& residual) {
  exec_.For(t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      exec_.ops().norm_row({.x = t.x + i * c.hidden,
                            .add = residual.y + i * c.hidden,
                            .add_norm = residual.norm,
                            .eps = c.rms_eps,
                            .n = c.hidden});
    }
  });
}

void Forward::AddResidual(const float* y, float scale) {
  exec_.For(t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
    exec_.ops().add(y + uint64_t{begin} * c.hidden, scale, (end - begin) * c.hidden,
                    t.x + uint64_t{begin} * c.hidden);
  });
}

Operand Forward::Gated(const Operand& h, const GluMatrices& m, Glu glu) {
  const uint32_t n = m.gate.rows;
  const ActFormat format = exec_.FormatFor(m.down.type);
  const GluJob job{exec_.ArgsOf(m.gate, h, m.gate_bias), exec_.ArgsOf(m.up, h, m.up_bias)};
  exec_.RunGlu({&job, 1}, {.unit = {.glu = glu},
                           .n = n,
                           .format = format,
                           .gate = a.gate,
                           .up = a.up,
                           .act = &a.gated_act});
  return {a.gate, n, t.rows, n, &a.gated_act, 0, FormatBit(format)};
}

Operand Forward::Gated(const Operand& h, const LayerWeights& w, Glu glu) {
  return Gated(h,
               {w[MatrixRole::kGate], w[MatrixRole::kUp], w[MatrixRole::kDown],
                w[VectorRole::kGateBias], w[VectorRole::kUpBias]},
               glu);
}

void Forward::RopeRow(uint64_t i, float* x, uint32_t heads, uint32_t stride, uint32_t layer) const {
  const bool sliding = c.kinds[layer] == LayerKind::kSliding && t.cos_sliding != nullptr;
  const RopeConfig& rope = sliding ? c.rope_sliding : c.rope;
  const float* cos = sliding ? t.cos_sliding : t.cos;
  const float* sin = sliding ? t.sin_sliding : t.sin;
  const uint64_t at = i * (rope.dims / 2);
  exec_.ops().rope(x, heads, stride, rope.dims, rope.adjacent, cos + at, sin + at);
}

void Forward::Clamp(float* x, uint32_t n, float limit) {
  if (limit <= 0) return;
  for (uint64_t i = 0; i < uint64_t{t.rows} * n; ++i) x[i] = std::clamp(x[i], -limit, limit);
}

void Forward::StoreLatent(uint64_t i, uint32_t layer, const float* k) const {
  const KvLayout::Layer& l = kv_.layers[layer];
  uint8_t* page = t.seq[i]->PagesOf(l)[t.pos[i] / kKvPageTokens] + l.offset;
  exec_.ops().kv_store(kv_.format, false, k, c.mla.kv_rank + c.mla.rope_dim,
                       page + t.pos[i] % kKvPageTokens * l.k_row);
}

// Row `row` of a.k and a.v, one KV head.
void Forward::StoreHead(uint64_t row, uint32_t layer, uint32_t head) const {
  const KvLayout::Layer& l = kv_.layers[layer];
  uint8_t* page =
      t.seq[row]->PagesOf(l)[t.pos[row] / kKvPageTokens] + l.offset + head * l.head_stride;
  const uint64_t slot = t.pos[row] % kKvPageTokens, at = row * c.kv_heads[layer] + head;
  exec_.ops().kv_store(kv_.format, false, a.k + at * c.head_dim, c.head_dim, page + slot * l.k_row);
  exec_.ops().kv_store(kv_.format, true, a.v + at * c.head_dim_v, c.head_dim_v,
                       page + l.v_offset + slot * l.v_row);
}

// One KV head of a row and its query heads, up to where attention begins.
void Forward::ReadyHead(const LayerWeights& w, const HeadSteps& steps, uint64_t row,
                        uint32_t head) const {
  const uint32_t kv_heads = c.kv_heads[w.layer], group = c.heads[w.layer] / kv_heads,
                 d = c.head_dim;
  const uint64_t at = row * kv_heads + head;
  float *q = a.q + at * group * d, *k = a.k + at * d;
  const Ops& ops = exec_.ops();
  if (steps.q_norm != nullptr) {
    for (uint32_t j = 0; j < group; ++j)
      ops.rms_norm(q + uint64_t{j} * d, steps.q_norm, c.rms_eps, d, q + uint64_t{j} * d);
  }
  if (steps.k_norm != nullptr) ops.rms_norm(k, steps.k_norm, c.rms_eps, d, k);
  RopeRow(row, q, group, d, w.layer);
  RopeRow(row, k, 1, d, w.layer);
  StoreHead(row, w.layer, head);
}

uint32_t Forward::PiecesFor(const Heads& h) const {
  uint64_t seen = t.pos[t.rows - 1] + 1;  // the last row sees most
  if (c.kinds[h.layer] == LayerKind::kSliding) seen = std::min<uint64_t>(seen, c.sliding_window);
  return HeadPieces(t.rows * h.kv_heads, h.heads / h.kv_heads, exec_.threads(),
                    seen * t.rows * h.heads * (h.dim_k + h.dim_v));
}

void Forward::AttendPart(const Heads& h, uint64_t row, uint32_t rows, uint32_t part) const {
  const KvLayout::Layer& l = kv_.layers[h.layer];
  const uint32_t kv_head = part / h.pieces;
  AttentionArgs args;
  args.rows = rows;
  args.q_stride = h.q_stride;
  args.out_stride = h.out_stride;
  args.group = h.heads / h.parts();
  const uint64_t first_head = uint64_t{part} * args.group;
  args.q = h.q + row * h.q_stride + first_head * h.dim_k;
  args.dim_k = h.dim_k;
  args.dim_v = h.dim_v;
  args.format = kv_.format;
  args.pages = t.seq[row]->PagesOf(l);
  args.k_offset = l.offset + kv_head * l.head_stride;
  args.v_offset = args.k_offset + l.v_offset;
  args.k_row = l.k_row;
  args.v_row = l.v_row;
  args.last = t.pos[row];
  const bool sliding = c.kinds[h.layer] == LayerKind::kSliding;
  args.first = sliding && args.last >= c.sliding_window ? args.last - c.sliding_window + 1 : 0;
  args.scale = c.attention_scale;
  args.sinks = h.sinks == nullptr ? nullptr : h.sinks + first_head;
  args.out = h.out + row * h.out_stride + first_head * h.dim_v;
  exec_.ops().attention(args);
}

// A layer with a sliding window takes rows one by one: each sees other positions, and not many.
uint32_t Forward::RowsAtOnce(const Heads& h) const {
  for (uint32_t i = 1; i < t.rows; ++i) {
    if (t.seq[i] != t.seq[0] || t.pos[i] != t.pos[0] + i) return 1;
  }
  if (c.kinds[h.layer] == LayerKind::kSliding) return 1;
  const uint32_t fair = t.rows * h.parts() / (static_cast<uint32_t>(exec_.threads()) * 4);
  return std::clamp(fair, 1u, kAttendRowsMax);
}

void Forward::AttendTile(const Heads& h, FunctionRef<void(uint64_t row, uint32_t part)> after) {
  const uint32_t parts = h.parts(), most = RowsAtOnce(h), runs = (t.rows + most - 1) / most;
  exec_.For(runs * parts, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t first = i / parts * most, n = std::min(most, t.rows - first);
      AttendPart(h, first, n, i % parts);
      for (uint32_t row = first; row < first + n; ++row) after(row, i % parts);
    }
  });
}

Operand Forward::Attend(const LayerWeights& w, const HeadSteps& steps) {
  const uint32_t kv_heads = c.kv_heads[w.layer], heads = c.heads[w.layer],
                 cols = heads * c.head_dim_v;
  Heads h{w.layer,
          heads,
          kv_heads,
          c.head_dim,
          c.head_dim_v,
          a.q,
          uint64_t{heads} * c.head_dim,
          w[VectorRole::kSinks],
          a.mixed,
          cols};
  h.pieces = PiecesFor(h);
  const uint32_t parts = h.parts(), run = cols / parts;
  const ActFormat format = exec_.FormatFor(w[MatrixRole::kO].type);
  // A part's outputs are whole blocks almost always: then they are quantised where they are.
  const bool fits =
      format != ActFormat::kF32 && run % (format == ActFormat::kQ8x32 ? 32 : 256) == 0;
  const auto ready = [&](uint64_t row, uint32_t part) {
    float* out = a.mixed + row * cols + part * run;
    if (steps.gate != nullptr)
      exec_.ops().mul_sigmoid(steps.gate + row * cols + part * run, run, out);
    if (fits) exec_.ops().quantize_row(out, run, exec_.Out(format, a.act, row, cols, part * run));
  };
  if (t.rows == 1 && h.pieces == 1) {
    exec_.For(kv_heads, 1, [&](uint32_t begin, uint32_t end) {
      for (uint32_t head = begin; head < end; ++head) {
        ReadyHead(w, steps, 0, head);
        AttendPart(h, 0, 1, head);
        ready(0, head);
      }
    });
  } else {
    // A row attends to the rows before it, a piece to what others store: all are stored first.
    exec_.For(t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
      for (uint64_t row = begin; row < end; ++row) {
        for (uint32_t head = 0; head < kv_heads; ++head) ReadyHead(w, steps, row, head);
      }
    });
    AttendTile(h, ready);
  }
  if (fits || format == ActFormat::kF32)
    return {a.mixed, cols, t.rows, cols, &a.act, 0, FormatBit(format)};
  return exec_.Quantize(a.act, a.mixed, cols, t.rows, cols, FormatBit(format));
}

}  // namespace sluice
