// llama: Llama 2/3, SmolLM2, Mistral; with experts: Mixtral.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

// x += O attention(rope(Q h), rope(K h), V h),  h = norm(x)
void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{w[M::kQ], a.q, w[V::kQBias]},
                  {w[M::kK], a.k, w[V::kKBias]},
                  {w[M::kV], a.v, w[V::kVBias]}});
  f.Rope(a.q, f.c.heads[w.layer], f.c.head_dim, w.layer);
  f.Rope(a.k, f.c.kv_heads[w.layer], f.c.head_dim, w.layer);
  f.Attend(w);
  f.Project(a.mixed, {{w[M::kO], a.tmp, w[V::kOBias]}});
  f.AddResidual(a.tmp);
}

// x += down(silu(gate h) * up h),  h = norm(x)
void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  f.Mlp(f.a.h, w, w[V::kGateBias], w[V::kUpBias], w[V::kDownBias], Forward::Activation::kSilu,
        f.a.tmp);
  f.AddResidual(f.a.tmp);
}

}  // namespace

const ArchPage kLlamaPage = {Mix, Feed};
const ArchPage kQwen2Page = {Mix, Feed};  // the same with biases on q, k, v; the roles carry them

}  // namespace sluice
