// gpt-oss: biases everywhere, an attention sink per head, alternating windows; clamped SwiGLU in
// the experts.
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
  f.AddProjected(f.Attend(w), w[M::kO], w[V::kOBias]);  // the sinks ride in the layer's vectors
}

}  // namespace

const ArchPage kGptOssPage = {Mix, Route};

}  // namespace sluice
