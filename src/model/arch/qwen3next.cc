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
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  SplitGate(f, f.c.heads[w.layer]);
  f.AddProjected(f.Attend(w, {w[V::kQNorm], w[V::kKNorm], a.aux}), w[M::kO]);
}

void Mix(Forward& f, const LayerWeights& w) {
  if (f.c.kinds[w.layer] == LayerKind::kDeltaNet) return DeltaNetMix(f, w);
  GatedAttention(f, w);
}

void Feed(Forward& f, const LayerWeights& w) {
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  const Operand h = f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp});
  f.AddProjected(f.Gated(h, w, Glu::kSilu), w[M::kDown]);
}

}  // namespace

const ArchPage kQwen3NextPage = {Mix, Feed};

}  // namespace sluice
