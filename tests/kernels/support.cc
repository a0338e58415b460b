#include "tests/kernels/support.h"

#include <gtest/gtest.h>

namespace sluice::testing {
namespace {

// Where the halves (scales and mins) of a block lie; MXFP4 has an exponent byte instead.
std::vector<uint32_t> HalfOffsets(WeightType type) {
  switch (type) {
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      return {0, 2};
    case WeightType::kQ2_K:
      return {80, 82};
    case WeightType::kQ3_K:
      return {108};
    case WeightType::kQ6_K:
      return {208};
    case WeightType::kTQ1_0:
      return {52};
    case WeightType::kTQ2_0:
      return {64};
    default:
      return {0};
  }
}

void FillFloats(WeightType type, uint8_t* p, uint64_t n, uint32_t seed) {
  const std::vector<float> x = Gaussian(n, seed);
  for (uint64_t i = 0; i < n; ++i) {
    const uint16_t half = type == WeightType::kF16 ? FloatToHalf(x[i]) : FloatToBf16(x[i]);
    if (type == WeightType::kF32) {
      std::memcpy(p + 4 * i, &x[i], 4);
    } else {
      std::memcpy(p + 2 * i, &half, 2);
    }
  }
}

// IQ1_M keeps its half in the top nibbles of four words.
void StoreIq1Scale(uint16_t half, uint8_t* block) {
  for (int k = 0; k < 4; ++k) {
    uint8_t& byte = block[49 + 2 * k];
    byte = uint8_t((byte & 15) | ((half >> (4 * k)) & 15) << 4);
  }
}

void FillBlocks(WeightType type, uint8_t* p, uint64_t blocks, uint32_t seed, Fill fill) {
  const uint32_t bytes = InfoOf(type).block_bytes;
  std::mt19937 rng(seed);
  for (uint64_t b = 0; b < blocks; ++b, p += bytes) {
    for (uint32_t i = 0; i < bytes; ++i) {
      p[i] = fill == Fill::kRandom ? uint8_t(rng()) : fill == Fill::kAllHigh ? 0xff : 0;
    }
    if (fill != Fill::kRandom && type == WeightType::kQ8_0) {
      std::memset(p, fill == Fill::kAllHigh ? 0x7f : 0x80, bytes);
    }
    if (fill != Fill::kRandom && type == WeightType::kQ6_K) {
      std::memset(p + 192, fill == Fill::kAllHigh ? 0x7f : 0x80, 16);
    }
    if (type == WeightType::kMXFP4) {
      p[0] = uint8_t(120 + rng() % 8);
      continue;
    }
    for (const uint32_t offset : HalfOffsets(type)) {
      const float d = float(int(rng() % 2000) - 1000) * 1e-4f;
      const uint16_t half = FloatToHalf(d);
      if (type == WeightType::kIQ1_M) {
        StoreIq1Scale(half, p);
        continue;
      }
      std::memcpy(p + offset, &half, 2);
    }
  }
}

}  // namespace

std::vector<WeightType> AllIntTypes() {
  std::vector<WeightType> types(std::begin(kIntTypes), std::end(kIntTypes));
  for (const WeightType type : kCodebookTypes) {
    if (InfoOf(type).decodes) types.push_back(type);
  }
  return types;
}

Weights RandomWeights(WeightType type, uint32_t rows, uint32_t cols, uint32_t seed, Fill fill) {
  const uint64_t row_bytes = RowBytes(type, cols).value();
  Weights w{type, rows, cols, row_bytes, seed % 4 * 2 + 1, {}};
  w.bytes.resize(w.pad + rows * row_bytes);
  if (InfoOf(type).block_elems == 1) {
    FillFloats(type, w.bytes.data() + w.pad, uint64_t{rows} * cols, seed);
  } else {
    FillBlocks(type, w.bytes.data() + w.pad, rows * row_bytes / InfoOf(type).block_bytes, seed,
               fill);
  }
  return w;
}

Activations MakeActivations(const Ops& ops, ActFormat format, const std::vector<float>& x,
                            uint32_t rows, uint32_t cols) {
  Activations a;
  a.rows.format = format;
  a.rows.rows = rows;
  a.rows.cols = cols;
  if (format == ActFormat::kF32) {
    a.f32 = x;
    a.rows.f32 = a.f32.data();
    a.rows.f32_stride = cols;
    return a;
  }
  const uint64_t scales = ActScales(format, cols), sums = ActSums(format, cols);
  a.q.resize(uint64_t{rows} * cols);
  a.scale.resize(rows * scales);
  a.sums.resize(rows * sums);
  for (uint32_t t = 0; t < rows; ++t) {
    ops.quantize(format, x.data() + uint64_t{t} * cols, cols, a.q.data() + uint64_t{t} * cols,
                 a.scale.data() + t * scales, a.sums.data() + t * sums);
  }
  a.rows.q = a.q.data();
  a.rows.q_stride = cols;
  a.rows.scale = a.scale.data();
  a.rows.scale_stride = scales;
  a.rows.sums = a.sums.data();
  a.rows.sums_stride = sums;
  return a;
}

std::vector<float> Matmul(const Ops& ops, const Weights& w, const ActRows& x, const float* bias) {
  std::vector<float> out(uint64_t{x.rows} * w.rows);
  const MatmulArgs args{.weights = w.data(),
                        .row_bytes = w.row_bytes,
                        .type = w.type,
                        .x = x,
                        .bias = bias,
                        .out = out.data(),
                        .out_stride = w.rows};
  ops.matmul(args, 0, w.rows);
  return out;
}

std::vector<double> ReferenceMatmul(const Weights& w, const ActRows& x) {
  std::vector<double> out(uint64_t{x.rows} * w.rows);
  std::vector<float> row(w.cols);
  const uint32_t block = x.format == ActFormat::kQ8x32 ? 32 : 256;
  for (uint32_t r = 0; r < w.rows; ++r) {
    DecodeRow(w.type, w.data() + r * w.row_bytes, row.data(), w.cols);
    for (uint32_t t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (uint32_t c = 0; c < w.cols; ++c) {
        const double v =
            x.format == ActFormat::kF32
                ? x.f32[t * x.f32_stride + c]
                : double(x.scale[t * x.scale_stride + c / block]) * x.q[t * x.q_stride + c];
        sum += row[c] * v;
      }
      out[uint64_t{t} * w.rows + r] = sum;
    }
  }
  return out;
}

}  // namespace sluice::testing
