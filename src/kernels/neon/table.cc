#include "kernels/neon/leaves.h"
#include "kernels/tables.h"

namespace sluice {
namespace {

Ops Table(const char* isa, decltype(Ops::matmul) matmul) {
  Ops ops = *ScalarOps();
  ops.isa = isa;
  ops.matmul = matmul;
  ops.quantize = neon::Quantize;
  return ops;
}

}  // namespace

const Ops* NeonOps() {
  static const Ops ops = Table("neon", neon::Matmul);
  return &ops;
}

const Ops* NeonDotprodOps() {
  static const Ops ops = Table("neon_dotprod", neon_dotprod::Matmul);
  return &ops;
}

}  // namespace sluice
