// deepseek2: multi-head latent attention; dense MLPs first, then experts with ungated shared ones.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void Feed(Forward& f, const LayerWeights& w) {
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  const Operand h = f.Normed(w, V::kFfnNorm, {M::kGate, M::kUp});
  f.AddProjected(f.Gated(h, w, Glu::kSilu), w[M::kDown]);
}

}  // namespace

const ArchPage kDeepseek2Page = {LatentAttention, Feed};

}  // namespace sluice
