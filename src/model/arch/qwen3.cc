// qwen3 and qwen3moe: llama with an RMS norm on every query and key head before the rotation.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{w[M::kQ], a.q, w[V::kQBias]},
                {w[M::kK], a.k, w[V::kKBias]},
                {w[M::kV], a.v, w[V::kVBias]}});
  f.AddProjected(f.Attend(w, {w[V::kQNorm], w[V::kKNorm]}), w[M::kO], w[V::kOBias]);
}

void Feed(Forward& f, const LayerWeights& w) {
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  const Operand h = f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp});
  f.AddProjected(f.Gated(h, w, Glu::kSilu), w[M::kDown]);
}

}  // namespace

const ArchPage kQwen3Page = {Mix, Feed};
const ArchPage kQwen3MoePage = {Mix, Feed};

}  // namespace sluice
