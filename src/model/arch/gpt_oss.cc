// gpt-oss: biases everywhere, an attention sink per head, alternating windows; clamped SwiGLU in
// the experts.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{w[M::kQ], a.q, w[V::kQBias]},
                  {w[M::kK], a.k, w[V::kKBias]},
                  {w[M::kV], a.v, w[V::kVBias]}});
  f.Rope(a.q, f.c.heads[w.layer], f.c.head_dim, w.layer);
  f.Rope(a.k, f.c.kv_heads[w.layer], f.c.head_dim, w.layer);
  f.Attend(w);  // the sinks ride in the layer's vectors
  f.Project(a.mixed, {{w[M::kO], a.tmp, w[V::kOBias]}});
  f.AddResidual(a.tmp);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  Route(f, w);
}

}  // namespace

const ArchPage kGptOssPage = {Mix, Feed};

}  // namespace sluice
