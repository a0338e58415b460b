// qwen3next, qwen35, qwen35moe (Qwen3-Next, Qwen3.5/3.6): three gated DeltaNet layers to one of
// gated attention, a mixture of experts with a gated shared expert in every layer (a plain MLP in
// the dense sibling).
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

// a.q [T][H][query d | gate d] -> queries packed into a.q [T][H][d], gates into a.aux [T][H][d].
void SplitGate(Forward& f, uint32_t heads) {
  const uint32_t d = f.c.head_dim;
  for (uint64_t i = 0; i < uint64_t{f.t.rows} * heads; ++i) {
    const float* pair = f.a.q + i * 2 * d;
    for (uint32_t j = 0; j < d; ++j) f.a.aux[i * d + j] = pair[d + j];
    for (uint32_t j = 0; j < d; ++j)
      f.a.q[i * d + j] = pair[j];  // moves down only, never over unread data
  }
}

void GatedAttention(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const uint32_t heads = f.c.heads[w.layer], kv_heads = f.c.kv_heads[w.layer], d = f.c.head_dim;
  f.Project(a.h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  SplitGate(f, heads);
  f.HeadNorm(a.q, heads, d, w[V::kQNorm]);
  f.HeadNorm(a.k, kv_heads, d, w[V::kKNorm]);
  f.Rope(a.q, heads, d, w.layer);
  f.Rope(a.k, kv_heads, d, w.layer);
  f.Attend(w);
  for (uint64_t i = 0; i < f.t.rows; ++i) {
    f.exec().ops().mul_sigmoid(a.aux + i * heads * d, heads * d, a.mixed + i * heads * d);
  }
  f.Project(a.mixed, {{w[M::kO], a.tmp}});
}

void Mix(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kAttnNorm], f.a.h);
  if (f.c.kinds[w.layer] == LayerKind::kDeltaNet) {
    DeltaNetMix(f, w);
  } else {
    GatedAttention(f, w);
  }
  f.AddResidual(f.a.tmp);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  f.Mlp(f.a.h, w, nullptr, nullptr, nullptr, Forward::Activation::kSilu, f.a.tmp);
  f.AddResidual(f.a.tmp);
}

}  // namespace

const ArchPage kQwen3NextPage = {Mix, Feed};

}  // namespace sluice
