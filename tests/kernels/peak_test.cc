// The loops behind the measured ceilings do their rounds and say how many operations that was.
#include "kernels/peak.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "kernels/ops.h"

namespace sluice {
namespace {

TEST(Peak, EverySetHasLoopsThatScaleWithTheirRounds) {
  for (const std::string_view isa : AvailableIsas()) {
    const PeakLoops loops = FindPeakLoops(isa);
    ASSERT_NE(loops.int8, nullptr) << isa;
    ASSERT_NE(loops.f32, nullptr) << isa;
    for (const auto loop : {loops.int8, loops.f32}) {
      const uint64_t one = loop(1);
      EXPECT_GT(one, 0u);
      EXPECT_EQ(loop(1000), 1000 * one) << isa;
      // A loop that the compiler emptied would take no time: no core does 2e13 a second.
      double best = 1e9;
      for (int i = 0; i < 5; ++i) {
        const double start = NowSeconds();
        loop(200000);
        best = std::min(best, NowSeconds() - start);
      }
      EXPECT_LT(static_cast<double>(200000 * one) / best, 2e13) << isa;
    }
  }
}

TEST(Peak, UnknownSetsHaveNone) {
  EXPECT_EQ(FindPeakLoops("sparc").int8, nullptr);
  EXPECT_EQ(FindPeakLoops("").f32, nullptr);
}

}  // namespace
}  // namespace sluice
