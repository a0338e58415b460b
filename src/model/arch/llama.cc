// llama: Llama 2/3, SmolLM2, Mistral; with experts: Mixtral.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

// x += O attention(rope(Q h), rope(K h), V h),  h = norm(x)
void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{w[M::kQ], a.q, w[V::kQBias]},
                {w[M::kK], a.k, w[V::kKBias]},
                {w[M::kV], a.v, w[V::kVBias]}});
  f.AddProjected(f.Attend(w), w[M::kO], w[V::kOBias]);
}

// x += down(silu(gate h) * up h),  h = norm(x)
void Feed(Forward& f, const LayerWeights& w) {
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  const Operand h = f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp});
  f.AddProjected(f.Gated(h, w, Glu::kSilu), w[M::kDown], w[V::kDownBias]);
}

}  // namespace

const ArchPage kLlamaPage = {Mix, Feed};
const ArchPage kQwen2Page = {Mix, Feed};  // the same with biases on q, k, v; the roles carry them

}  // namespace sluice
