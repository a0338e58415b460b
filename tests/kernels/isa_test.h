// The fixture of kernel tests that run once per instruction set: those this processor has, and the
// emulated ones.
//
// Contract: test code only; instantiate in each file with SLUICE_EVERY_ISA(Fixture).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/emulated.h"

namespace sluice::testing {

class IsaTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Ops& ops() const {
    const Ops* emulated = EmulatedOps(GetParam());
    return emulated != nullptr ? *emulated : *GetOps(GetParam());
  }
  const Ops& scalar() const { return *GetOps("scalar"); }
};

inline std::vector<std::string> IsaNames() {
  std::vector<std::string> names;
  for (const auto name : AvailableIsas()) names.emplace_back(name);
  for (const std::string& name : EmulatedNames()) names.push_back(name);
  return names;
}

#define SLUICE_EVERY_ISA(Fixture)                                         \
  INSTANTIATE_TEST_SUITE_P(Isa, Fixture, ::testing::ValuesIn(IsaNames()), \
                           [](const auto& param) { return param.param; })

}  // namespace sluice::testing
