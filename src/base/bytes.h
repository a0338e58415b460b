// Sizes: literals, overflow-checked arithmetic, alignment, parsing and printing.
//
// Contract: pure functions. Sizes on the command line take K/M/G/T as powers of 1024 (DESIGN
// section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

using ByteSpan = std::span<const uint8_t>;
using MutableByteSpan = std::span<uint8_t>;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// `alignment` must be a power of two.
constexpr uint64_t AlignUp(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) & ~(alignment - 1);
}
constexpr uint64_t AlignDown(uint64_t n, uint64_t alignment) { return n & ~(alignment - 1); }

// nullopt on overflow: lengths read from a file are multiplied with these only.
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// "3G", "1.5G", "72M", "4096" -> bytes; nullopt when it is not a size.
std::optional<uint64_t> ParseSize(std::string_view text);

// 75497472 -> "72.0 MiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace sluice
