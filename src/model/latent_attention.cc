// Multi-head latent attention in absorbed form (docs/architectures.md, deepseek_v2).
//
// The cache holds one row per token, [latent | rotated rope key], shared by all heads: attention
// runs in the latent space with the queries multiplied by the key up-projection and the result by
// the value up-projection.
#include <algorithm>
#include <array>

#include "base/limits.h"
#include "model/forward.h"

namespace sluice {
namespace {

constexpr float kInnerEps = 1e-6f;  // of both inner norms, whatever rms eps the config says
constexpr uint32_t kRowGrain = 4;   // head rows a thread takes at least

// out[T][H][rows_h] = W_h x[T][H][cols] with W = [H][rows_h][cols]: a product per head, each with
// its own input, in as few regions as the jobs allow. x and out rows have the given strides in
// floats.
void ProjectPerHead(Forward& f, const Matrix& w, uint32_t heads, const float* x, uint64_t x_head,
                    uint64_t x_row, float* out, uint64_t out_head, uint64_t out_row) {
  Exec& exec = f.exec();
  const uint32_t rows_h = w.rows / heads, tokens = f.t.rows;
  const uint32_t formats = FormatBit(exec.FormatFor(w.type));
  if (exec.FormatFor(w.type) != ActFormat::kF32) {
    exec.For(heads * tokens, kRowGrain, [&](uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) {
        const float* row = x + i / tokens * x_head + i % tokens * x_row;
        exec.QuantizeRow(row, w.cols, f.a.act, i, formats);  // [H][T]
      }
    });
  }
  std::array<MatmulJob, Exec::kJobsMax> jobs;
  size_t n = 0;
  for (uint32_t head = 0; head < heads; ++head) {
    const Matrix part{w.data + uint64_t{head} * rows_h * w.row_bytes, w.type, rows_h, w.cols,
                      w.row_bytes};
    const Operand in{x + head * x_head,       x_row,  tokens, w.cols, &f.a.act,
                     uint64_t{head} * tokens, formats};
    MatmulArgs args = exec.ArgsOf(part, in, nullptr);
    args.out = out + head * out_head;
    args.out_stride = out_row;
    jobs[n++] = {args, rows_h};
    if (n < jobs.size() && head + 1 < heads) continue;
    exec.Run({jobs.data(), n});
    n = 0;
  }
}

}  // namespace

void LatentAttention(Forward& f, const LayerWeights& w) {
  const MlaConfig& m = f.c.mla;
  Activations& a = f.a;
  const uint32_t heads = f.c.heads[w.layer], dim_q = m.nope_dim + m.rope_dim,
                 dim_k = m.kv_rank + m.rope_dim;
  const uint64_t rows = f.t.rows;
  const MatrixRole query = w[MatrixRole::kMlaQa] ? MatrixRole::kMlaQa : MatrixRole::kQ;
  const Operand h = f.Normed(w, VectorRole::kAttnNorm, {query, MatrixRole::kMlaKvA});
  if (query == MatrixRole::kMlaQa) {
    float* low = a.aux;
    f.Project(h, {{w[MatrixRole::kMlaQa], low}, {w[MatrixRole::kMlaKvA], a.k}});
    f.Norm(low, w[VectorRole::kMlaQaNorm], low, m.q_rank, kInnerEps);
    f.Project(low, {{w[MatrixRole::kMlaQb], a.q}});
  } else {
    f.Project(h, {{w[MatrixRole::kQ], a.q}, {w[MatrixRole::kMlaKvA], a.k}});
  }
  f.exec().For(f.t.rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      float* k = a.k + i * dim_k;
      f.exec().ops().rms_norm(k, w[VectorRole::kMlaKvANorm], kInnerEps, m.kv_rank, k);
      // The rope part lies behind the plain part of each head.
      f.RopeRow(i, a.q + i * heads * dim_q + m.nope_dim, heads, dim_q, w.layer);
      f.RopeRow(i, k + m.kv_rank, 1, dim_k, w.layer);
      f.StoreLatent(i, w.layer, k);
    }
  });

  float* latent_q = a.aux;                           // [T][H][rank + rope]
  float* latent_out = a.aux + rows * heads * dim_k;  // [T][H][rank]
  ProjectPerHead(f, w[MatrixRole::kMlaKB], heads, a.q, dim_q, uint64_t{heads} * dim_q, latent_q,
                 dim_k, uint64_t{heads} * dim_k);
  f.exec().For(f.t.rows, kRowGrain, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = uint64_t{begin} * heads; i < uint64_t{end} * heads; ++i)
      std::copy_n(a.q + i * dim_q + m.nope_dim, m.rope_dim, latent_q + i * dim_k + m.kv_rank);
  });
  Forward::Heads latent{w.layer,
                        heads,
                        1,
                        dim_k,
                        m.kv_rank,
                        latent_q,
                        uint64_t{heads} * dim_k,
                        nullptr,
                        latent_out,
                        uint64_t{heads} * m.kv_rank};
  latent.pieces = f.PiecesFor(latent);
  f.AttendTile(latent, [](uint64_t, uint32_t) {});
  ProjectPerHead(f, w[MatrixRole::kMlaVB], heads, latent_out, m.kv_rank,
                 uint64_t{heads} * m.kv_rank, a.mixed, m.value_dim, uint64_t{heads} * m.value_dim);
  const Matrix& o = w[MatrixRole::kO];
  const uint32_t formats = FormatBit(f.exec().FormatFor(o.type));
  f.AddProjected(f.exec().Quantize(a.act, a.mixed, o.cols, f.t.rows, o.cols, formats), o);
}

}  // namespace sluice
