#include "kernels/peak.h"

namespace sluice::scalar {
namespace {

constexpr int kElems = 256;

// The compiler's best for the plain loop, whatever it makes of it for the baseline processor.
template <class T, class Sum>
uint64_t Loop(uint64_t rounds) {
  T a[kElems], b[kElems];
  for (int i = 0; i < kElems; ++i) a[i] = static_cast<T>(i % 7), b[i] = static_cast<T>(i % 5);
  Sum sum[8] = {};
  for (uint64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    for (int i = 0; i < kElems; i += 8) {
      for (int j = 0; j < 8; ++j) sum[j] += static_cast<Sum>(a[i + j]) * static_cast<Sum>(b[i + j]);
    }
  }
  asm volatile("" : : "r"(sum) : "memory");
  return 2 * kElems * rounds;
}

}  // namespace

// Unsigned sums: they wrap.
uint64_t PeakInt8(uint64_t rounds) { return Loop<int8_t, uint32_t>(rounds); }
uint64_t PeakF32(uint64_t rounds) { return Loop<float, float>(rounds); }

// Eight streams, as the kernels read.
void PeakRead(const uint8_t* bytes, uint64_t n) {
  constexpr uint64_t kStreams = 8;
  const uint64_t run = n / kStreams / 64 * 64;
  uint64_t sum[8] = {};
  for (uint64_t at = 0; at < run; at += 64) {
    for (uint64_t s = 0; s < kStreams; ++s) {
      uint64_t words[8];
      __builtin_memcpy(words, bytes + s * run + at, 64);
      for (int i = 0; i < 8; ++i) sum[i] ^= words[i];
    }
  }
  asm volatile("" : : "r"(sum) : "memory");
}

}  // namespace sluice::scalar
