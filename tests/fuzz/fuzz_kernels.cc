// Kernel calls on every instruction set of this machine, and on the emulated ones, against scalar
// (tests/kernels/differential.h).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "kernels/ops.h"
#include "tests/kernels/differential.h"
#include "tests/kernels/emulated.h"

namespace {

void Check(const sluice::Ops& ops, std::span<const uint8_t> bytes) {
  const std::string wrong = sluice::testing::CheckKernelCase(ops, *sluice::GetOps("scalar"), bytes);
  if (wrong.empty()) return;
  fprintf(stderr, "%s: %s\n", ops.isa, wrong.c_str());
  __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  for (const std::string_view isa : AvailableIsas()) {
    if (isa != "scalar") Check(*GetOps(isa), {data, size});
  }
  for (const std::string& isa : testing::EmulatedNames()) {
    Check(*testing::EmulatedOps(isa), {data, size});
  }
  return 0;
}
