// deepseek2: multi-head latent attention; dense MLPs first, then experts with ungated shared ones.
#include "model/arch/arch.h"

namespace sluice {
namespace {

using V = VectorRole;

void Mix(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kAttnNorm], f.a.h);
  LatentAttention(f, w);
  f.AddResidual(f.a.tmp);
}

void Feed(Forward& f, const LayerWeights& w) {
  f.Norm(f.t.x, w[V::kFfnNorm], f.a.h);
  if (f.c.IsMoeLayer(w.layer)) return Route(f, w);
  f.Mlp(f.a.h, w, nullptr, nullptr, nullptr, Forward::Activation::kSilu, f.a.tmp);
  f.AddResidual(f.a.tmp);
}

}  // namespace

const ArchPage kDeepseek2Page = {Mix, Feed};

}  // namespace sluice
