// Which tables a processor is given: CPUID and XCR0 of processors that exist, and of operating
// systems that save fewer registers than the processor has.
#include <gtest/gtest.h>

#include "kernels/tables.h"

#if defined(__x86_64__)

namespace sluice {
namespace {

using Names = std::vector<std::string_view>;

constexpr uint32_t Bits(std::initializer_list<int> bits) {
  uint32_t value = 0;
  for (const int bit : bits) value |= 1u << bit;
  return value;
}

bool Granted() { return true; }
bool Denied() { return false; }
bool MustNotBeAsked() {
  ADD_FAILURE() << "asked for tiles where they are of no use";
  return true;
}

// FMA, OSXSAVE, AVX, F16C; AVX2; XMM and YMM are saved.
X86Registers Haswell() {
  return {.leaf1_ecx = Bits({12, 27, 28, 29}), .leaf7_ebx = Bits({5}), .xcr0 = 0x7};
}
X86Registers AlderLake() {
  X86Registers r = Haswell();
  r.leaf7_1_eax = Bits({4});
  return r;
}
// F, DQ, BW, VL, without VNNI; mask registers and ZMM are saved.
X86Registers SkylakeServer() {
  X86Registers r = Haswell();
  r.leaf7_ebx |= Bits({16, 17, 30, 31});
  r.xcr0 = 0xe7;
  return r;
}
X86Registers IceLake() {
  X86Registers r = SkylakeServer();
  r.leaf7_ecx = Bits({11});
  return r;
}
X86Registers SapphireRapids() {
  X86Registers r = IceLake();
  r.leaf7_1_eax = Bits({4, 5});
  r.leaf7_edx = Bits({22, 23, 24, 25});
  r.xcr0 = 0x600e7;
  return r;
}

Names IsasOf(const X86Registers& r, bool (*may_use_tiles)() = MustNotBeAsked) {
  return IsasFor(X86FeaturesOf(r), may_use_tiles);
}

TEST(IsaChoice, Processors) {
  EXPECT_EQ(IsasOf({}), Names({"scalar"}));
  EXPECT_EQ(IsasOf(Haswell()), Names({"avx2", "scalar"}));
  EXPECT_EQ(IsasOf(AlderLake()), Names({"avxvnni", "avx2", "scalar"}));
  EXPECT_EQ(IsasOf(SkylakeServer()), Names({"avx2", "scalar"}));
  EXPECT_EQ(IsasOf(IceLake()), Names({"avx512", "avx2", "scalar"}));
  EXPECT_EQ(IsasOf(SapphireRapids(), Granted),
            Names({"amx", "avx512", "avxvnni", "avx2", "scalar"}));
}

TEST(IsaChoice, TilesNeedPermission) {
  EXPECT_EQ(IsasOf(SapphireRapids(), Denied), Names({"avx512", "avxvnni", "avx2", "scalar"}));
}

TEST(IsaChoice, TheSystemMustSaveTheRegisters) {
  X86Registers r = SapphireRapids();
  r.xcr0 = 0xe7;  // no tiles
  EXPECT_EQ(IsasOf(r), Names({"avx512", "avxvnni", "avx2", "scalar"}));
  r.xcr0 = 0x200e7;  // tile configuration without tile data
  EXPECT_EQ(IsasOf(r), Names({"avx512", "avxvnni", "avx2", "scalar"}));
  for (const uint64_t missing : {0x20, 0x40, 0x80}) {  // masks, ZMM0-15, ZMM16-31
    r.xcr0 = 0x600e7 & ~missing;
    EXPECT_EQ(IsasOf(r), Names({"avxvnni", "avx2", "scalar"})) << missing;
  }
  for (const uint64_t missing : {0x2, 0x4}) {  // XMM, YMM
    r.xcr0 = 0x600e7 & ~missing;
    EXPECT_EQ(IsasOf(r), Names({"scalar"})) << missing;
  }
  r.xcr0 = 0x600e7;
  r.leaf1_ecx &= ~Bits({27});  // no OSXSAVE
  EXPECT_EQ(IsasOf(r), Names({"scalar"}));
}

TEST(IsaChoice, EverySingleFeatureCounts) {
  for (const int bit : {12, 28, 29}) {  // FMA, AVX, F16C
    X86Registers r = SapphireRapids();
    r.leaf1_ecx &= ~Bits({bit});
    EXPECT_EQ(IsasOf(r), Names({"scalar"})) << bit;
  }
  for (const int bit : {16, 17, 30, 31}) {  // F, DQ, BW, VL
    X86Registers r = SapphireRapids();
    r.leaf7_ebx &= ~Bits({bit});
    EXPECT_EQ(IsasOf(r), Names({"avxvnni", "avx2", "scalar"})) << bit;
  }
  for (const int bit : {24, 25}) {  // AMX-TILE, AMX-INT8
    X86Registers r = SapphireRapids();
    r.leaf7_edx &= ~Bits({bit});
    EXPECT_EQ(IsasOf(r), Names({"avx512", "avxvnni", "avx2", "scalar"})) << bit;
  }
  X86Registers r = SapphireRapids();
  r.leaf7_ebx &= ~Bits({5});  // no AVX2: nothing to fall back on
  EXPECT_EQ(IsasOf(r), Names({"scalar"}));
}

TEST(IsaChoice, EveryNameHasItsTable) {
  const Ops* tables[] = {AmxOps(), Avx512Ops(), AvxVnniOps(), Avx2Ops(), ScalarOps()};
  const Names names = IsasOf(SapphireRapids(), Granted);
  ASSERT_EQ(std::size(tables), names.size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(tables[i]->isa, names[i]);
}

// Whatever this machine is: the answer does not change, and without the processor it is no.
TEST(IsaChoice, AskingForTilesIsSafe) {
  const bool granted = RequestAmxTiles();
  EXPECT_EQ(RequestAmxTiles(), granted);
  EXPECT_TRUE(!granted || GetCpuFeatures().amx_int8);
}

}  // namespace
}  // namespace sluice

#endif
