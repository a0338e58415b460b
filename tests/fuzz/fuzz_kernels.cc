// Kernel calls on every instruction set of this machine against scalar
// (tests/kernels/differential.h).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "kernels/ops.h"
#include "tests/kernels/differential.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const Ops& scalar = *GetOps("scalar");
  for (const std::string_view isa : AvailableIsas()) {
    if (isa == "scalar") continue;
    const std::string wrong = testing::CheckKernelCase(*GetOps(isa), scalar, {data, size});
    if (wrong.empty()) continue;
    fprintf(stderr, "%.*s: %s\n", static_cast<int>(isa.size()), isa.data(), wrong.c_str());
    __builtin_trap();
  }
  return 0;
}
