// gemma3: norms before and after both halves of a block, head norms, sliding windows with their own
// rope, gelu. The embedding scale and the final soft cap are in the config.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

// tmp = O attention(rope(norm_q(Q h)), rope(norm_k(K h)), V h),  h = norm(x)
void Mix(Forward& f, const LayerWeights& w) {
  Activations& a = f.a;
  const Operand h = f.Normed(w, V::kAttnNorm, {M::kQ, M::kK, M::kV});
  f.Project(h, {{w[M::kQ], a.q}, {w[M::kK], a.k}, {w[M::kV], a.v}});
  f.Project(f.Attend(w, {w[V::kQNorm], w[V::kKNorm]}), {{w[M::kO], a.tmp}});
}

// x += norm_post(tmp);  x += norm_post(down(gelu(gate h) * up h)),  h = norm_pre(x)
void Feed(Forward& f, const LayerWeights& w) {
  float* tmp = f.a.tmp;
  const Operand h =
      f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp}, Residual{tmp, w[V::kPostAttnNorm]});
  f.Project(f.Gated(h, w, Glu::kGeluTanh), {{w[M::kDown], tmp}});
  f.AddResidual({tmp, w[V::kPostFfnNorm]});
}

}  // namespace

const ArchPage kGemma3Page = {Mix, Feed};

}  // namespace sluice
