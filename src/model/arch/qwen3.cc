// qwen3 and qwen3moe: llama with an RMS norm on every query and key head before the rotation.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const uint32_t heads = f.c.heads[w.layer], kv_heads = f.c.kv_heads[w.layer], d = f.c.head_dim;
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{w[M::kQ], a.q, w[V::kQBias]},
                  {w[M::kK], a.k, w[V::kKBias]},
                  {w[M::kV], a.v, w[V::kVBias]}});
  f.HeadNorm(a.q, heads, d, w[V::kQNorm]);
  f.HeadNorm(a.k, kv_heads, d, w[V::kKNorm]);
  f.Rope(a.q, heads, d, w.layer);
  f.Rope(a.k, kv_heads, d, w.layer);
  f.Attend(w);
  f.Project(a.mixed, {{w[M::kO], a.tmp, w[V::kOBias]}});
  f.AddResidual(a.tmp);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  f.Mlp(f.a.h, w, nullptr, nullptr, nullptr, Forward::Activation::kSilu, f.a.tmp);
  f.AddResidual(f.a.tmp);
}

}  // namespace

const ArchPage kQwen3Page = {Mix, Feed};
const ArchPage kQwen3MoePage = {Mix, Feed};

}  // namespace sluice
