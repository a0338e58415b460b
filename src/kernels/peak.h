// How fast a processor multiplies at best: each set's cheapest loop of products on registers.
//
// Contract: leaves, as in ops.h: no threads. A loop does `rounds`
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
  // Reads n bytes (to a multiple of 512) in eight streams, as the products do.
  void (*read)(const uint8_t* bytes, uint64_t n) = nullptr;
};

// For a name of AvailableIsas(); null pointers for any other.
PeakLoops FindPeakLoops(std::string_view isa);

namespace scalar {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
void PeakRead(const uint8_t* bytes, uint64_t n);
}  // namespace scalar
namespace avx2 {
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);
void PeakRead(const uint8_t* bytes, uint64_t n);
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
