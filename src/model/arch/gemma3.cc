// gemma3: norms before and after both halves of a block, head norms, sliding windows with their own
// rope, gelu. The embedding scale and the final soft cap are in the config.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

// x += norm_post(O attention(rope(norm_q(Q h)), rope(norm_k(K h)), V h)),  h = norm(x)
void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const uint32_t heads = f.c.heads[w.layer], kv_heads = f.c.kv_heads[w.layer], d = f.c.head_dim;
  f.Norm(f.t.x, w[V::kAttnNorm], a.h);
  f.Project(a.h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  f.HeadNorm(a.q, heads, d, w[V::kQNorm]);
  f.HeadNorm(a.k, kv_heads, d, w[V::kKNorm]);
  f.Rope(a.q, heads, d, w.layer);
  f.Rope(a.k, kv_heads, d, w.layer);
  f.Attend(w);
  f.Project(a.mixed, {{w[M::kO], a.tmp}});
  f.Norm(a.tmp, w[V::kPostAttnNorm], a.tmp);
  f.AddResidual(a.tmp);
}

// x += norm_post(down(gelu(gate h) * up h)),  h = norm_pre(x)
void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  f.Mlp(f.a.h, w, nullptr, nullptr, nullptr, Forward::Activation::kGeluTanh, f.a.tmp);
  f.Norm(f.a.tmp, w[V::kPostFfnNorm], f.a.tmp);
  f.AddResidual(f.a.tmp);
}

}  // namespace

const ArchPage kGemma3Page = {Mix, Feed};

}  // namespace sluice
