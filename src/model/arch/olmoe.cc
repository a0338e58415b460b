// olmoe: the query and key norms run over the whole projected vector, before the head split and the
// rotation.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const Matrix &wq = w[M::kQ], &wk = w[M::kK], &wv = w[M::kV];
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{wq, a.q}, {wk, a.k}, {wv, a.v}});
  f.Norm(a.q, w[V::kQNorm], a.q, wq.rows);
  f.Norm(a.k, w[V::kKNorm], a.k, wk.rows);
  f.Clamp(a.q, wq.rows, f.c.clamp_qkv);
  f.Clamp(a.k, wk.rows, f.c.clamp_qkv);
  f.Clamp(a.v, wv.rows, f.c.clamp_qkv);
  f.Rope(a.q, f.c.heads[w.layer], f.c.head_dim, w.layer);
  f.Rope(a.k, f.c.kv_heads[w.layer], f.c.head_dim, w.layer);
  f.Attend(w);
  f.Project(a.mixed, {{w[M::kO], a.tmp}});
  f.AddResidual(a.tmp);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  Route(f, w);
}

}  // namespace

const ArchPage kOlmoePage = {Mix, Feed};

}  // namespace sluice
