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
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{wq, a.q}, {wk, a.k}, {wv, a.v}});
  f.Norm(a.q, w[V::kQNorm], a.q, wq.rows);
  f.Norm(a.k, w[V::kKNorm], a.k, wk.rows);
  f.Clamp(a.q, wq.rows, f.c.clamp_qkv);
  f.Clamp(a.k, wk.rows, f.c.clamp_qkv);
  f.Clamp(a.v, wv.rows, f.c.clamp_qkv);
  f.AddProjected(f.Attend(w), w[M::kO]);
}

}  // namespace

const ArchPage kOlmoePage = {Mix, Route};

}  // namespace sluice
