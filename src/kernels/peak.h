// How fast a processor multiplies at best: each set's cheapest loop of products on registers.
//
// Contract: leaves, as in ops.h: no memory beyond the stack, no threads. A loop does `rounds`
// rounds and returns the operations (a product and its sum count as two); its caller takes the
// time. They are the ceiling that matrix products are measured against, nothing computes with them.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

struct PeakLoops {
  // Signed or unsigned bytes into 32-bit sums (AVX2: into 16-bit ones, as its kernels do).
  uint64_t (*int8)(uint64_t rounds) = nullptr;
  uint64_t (*f32)(uint64_t rounds) = nullptr;
};

// For a name of AvailableIsas(); null pointers for any other.
PeakLoops FindPeakLoops(std::string_view isa);

namespace scalar {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
}  // namespace scalar
namespace avx2 {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
}  // namespace avx2
namespace avxvnni {
uint64_t PeakInt8(uint64_t rounds);
}  // namespace avxvnni
namespace avx512 {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
}  // namespace avx512
namespace amx {
uint64_t PeakInt8(uint64_t rounds);
}  // namespace amx
namespace neon {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
}  // namespace neon
namespace neon_dotprod {
uint64_t PeakInt8(uint64_t rounds);
}  // namespace neon_dotprod
namespace neon_i8mm {
uint64_t PeakInt8(uint64_t rounds);
}  // namespace neon_i8mm

}  // namespace sluice
