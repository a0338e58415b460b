// granite and granitemoe: llama with four factors; the residual one is applied here, the rest by
// the config.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  f.Rope(a.q, f.c.heads[w.layer], f.c.head_dim, w.layer);
  f.Rope(a.k, f.c.kv_heads[w.layer], f.c.head_dim, w.layer);
  f.Attend(w);
  f.Project(a.mixed, {{w[M::kO], a.tmp}});
  f.AddResidual(a.tmp, f.c.residual_scale);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  f.Mlp(f.a.h, w, nullptr, nullptr, nullptr, Forward::Activation::kSilu, f.a.tmp);
  f.AddResidual(f.a.tmp, f.c.residual_scale);
}

}  // namespace

const ArchPage kGraniteMoePage = {Mix, Feed};

}  // namespace sluice
