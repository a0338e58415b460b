#include "tests/kernels/emulated.h"

#include "base/cpu.h"

namespace sluice {

#ifdef SLUICE_EMULATED
const Ops* EmulatedAvxVnniOps();
const Ops* EmulatedAvx512Ops();
const Ops* EmulatedAmxOps();
#endif

namespace testing {
namespace {

struct Table {
  const char* name;
  const Ops* (*ops)();
};

std::vector<Table> Tables() {
#ifdef SLUICE_EMULATED
  const CpuFeatures& cpu = GetCpuFeatures();
  if (cpu.avx2 && cpu.fma && cpu.f16c) {
    return {{"emulated_avxvnni", EmulatedAvxVnniOps},
            {"emulated_avx512", EmulatedAvx512Ops},
            {"emulated_amx", EmulatedAmxOps}};
  }
#endif
  return {};
}

}  // namespace

std::vector<std::string> EmulatedNames() {
  std::vector<std::string> names;
  for (const Table& table : Tables()) names.emplace_back(table.name);
  return names;
}

const Ops* EmulatedOps(std::string_view name) {
  for (const Table& table : Tables()) {
    if (name == table.name) return table.ops();
  }
  return nullptr;
}

}  // namespace testing
}  // namespace sluice
