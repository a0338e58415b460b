#include "kernels/scalar/kv.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kv_row.h"
#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// q = x / d rounded and clamped; d and the clamp bound lo..hi are finite and d > 0.
int Round(float x, float d, float lo, float hi) {
  const float q = std::nearbyintf(x / d);
  return static_cast<int>(q < lo ? lo : q > hi ? hi : q);
}

struct Range {
  float min, max;
  bool finite;
};

Range RangeOf(const float* x, uint32_t n) {
  Range range{x[0], x[0], true};
  for (uint32_t i = 0; i < n; ++i) {
    range.finite = range.finite && std::isfinite(x[i]);
    range.min = x[i] < range.min ? x[i] : range.min;
    range.max = x[i] > range.max ? x[i] : range.max;
  }
  return range;
}

void StoreQ8(const float* x, uint32_t n, uint8_t* out) {
  KvQ8Block block{};
  const Range range = RangeOf(x, n);
  const float max_abs = range.max > -range.min ? range.max : -range.min;
  // Adding zero makes a negative zero positive: which of the two zeros a row holds must not matter.
  block.scale = FloatToHalf(range.finite ? max_abs / 127.0f + 0.0f : kNan);
  const float d = HalfToFloat(block.scale);
  if (d > 0 && std::isfinite(d)) {
    for (uint32_t i = 0; i < n; ++i) {
      block.q[i] = static_cast<int8_t>(Round(x[i], d, -127.0f, 127.0f));
    }
  }
  std::memcpy(out, &block, sizeof(block));
}

void StoreQ4(const float* x, uint32_t n, uint8_t* out) {
  KvQ4Block block{};
  const Range range = RangeOf(x, n);
  block.scale = FloatToHalf(range.finite ? (range.max - range.min) / 15.0f + 0.0f : kNan);
  block.min = FloatToHalf(range.finite ? range.min + 0.0f : kNan);
  const float d = HalfToFloat(block.scale), min = HalfToFloat(block.min);
  if (d > 0 && std::isfinite(d) && std::isfinite(min)) {
    for (uint32_t i = 0; i < n; ++i) {
      const int q = Round(x[i] - min, d, 0.0f, 15.0f);
      block.q[i % 16] = static_cast<uint8_t>(block.q[i % 16] | q << (i < 16 ? 0 : 4));
    }
  }
  std::memcpy(out, &block, sizeof(block));
}

}  // namespace

void KvStore(KvFormat format, bool is_value, const float* x, uint32_t n, uint8_t* row) {
  if (format == KvFormat::kF32) {
    std::memcpy(row, x, uint64_t{n} * 4);
    return;
  }
  if (format == KvFormat::kF16) {
    for (uint32_t i = 0; i < n; ++i) {
      const uint16_t half = FloatToHalf(x[i]);
      std::memcpy(row + 2 * uint64_t{i}, &half, 2);
    }
    return;
  }
  const bool q4 = format == KvFormat::kK8V4 && is_value;
  for (uint32_t i = 0; i < n; i += kKvBlockElems) {
    const uint32_t count = n - i < kKvBlockElems ? n - i : kKvBlockElems;
    if (q4) {
      StoreQ4(x + i, count, row);
      row += sizeof(KvQ4Block);
    } else {
      StoreQ8(x + i, count, row);
      row += sizeof(KvQ8Block);
    }
  }
}

void LoadKv(KvFormat format, bool is_value, const uint8_t* row, uint32_t begin, uint32_t count,
            float* out) {
  if (format == KvFormat::kF32) {
    std::memcpy(out, row + uint64_t{begin} * 4, uint64_t{count} * 4);
  } else if (format == KvFormat::kF16) {
    for (uint32_t i = 0; i < count; ++i) {
      uint16_t half;
      std::memcpy(&half, row + 2 * uint64_t{begin + i}, 2);
      out[i] = HalfToFloat(half);
    }
  } else if (format == KvFormat::kK8V4 && is_value) {
    KvQ4Block block;
    std::memcpy(&block, row + uint64_t{begin} / kKvBlockElems * sizeof(block), sizeof(block));
    const float d = HalfToFloat(block.scale), min = HalfToFloat(block.min);
    for (uint32_t i = 0; i < count; ++i) {
      const int q = i < 16 ? block.q[i] & 15 : block.q[i - 16] >> 4;
      out[i] = min + d * static_cast<float>(q);
    }
  } else {
    KvQ8Block block;
    std::memcpy(&block, row + uint64_t{begin} / kKvBlockElems * sizeof(block), sizeof(block));
    const float d = HalfToFloat(block.scale);
    for (uint32_t i = 0; i < count; ++i) out[i] = d * static_cast<float>(block.q[i]);
  }
}

}  // namespace sluice::scalar
