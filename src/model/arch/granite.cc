// granite and granitemoe: llama with four factors; the residual one is applied here, the rest by
// the config.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  f.AddProjected(f.Attend(w), w[M::kO], nullptr, f.c.residual_scale);
}

void Feed(Forward& f, const LayerWeights& w) {
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  const Operand h = f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp});
  f.AddProjected(f.Gated(h, w, Glu::kSilu), w[M::kDown], nullptr, f.c.residual_scale);
}

}  // namespace

const ArchPage kGraniteMoePage = {Mix, Feed};

}  // namespace sluice
