#include <cstring>

#include "kernels/scalar/int_block.h"
#include "kernels/scalar/lanes.h"
#include "kernels/scalar/leaves.h"

namespace sluice::scalar {
namespace {

// Tokens whose accumulators live on the stack while one weight row is taken apart once.
constexpr uint32_t kTokenTile = 64;
// Elements decoded at a time for float activations; a multiple of every block size.
constexpr uint32_t kFloatChunk = 256;

int32_t Dot16(const int8_t* a, const int8_t* b) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a[i] * b[i];
  return sum;
}

// The value of a block times the activations at x, without their scale (int_block.h).
float BlockDot(const IntBlock& w, const int8_t* x, const int16_t* sums, uint32_t elems) {
  int32_t isum = 0, imin = 0;
  for (uint32_t g = 0; g < elems / 16; ++g) isum += w.s[g] * Dot16(w.q + 16 * g, x + 16 * g);
  float value = w.d * static_cast<float>(isum);
  if (w.has_min) {
    if (elems == 32) {
      imin = sums[0];
    } else {
      for (uint32_t g = 0; g < 16; ++g) imin += w.n[g] * sums[g];
    }
    value = value + w.m * static_cast<float>(imin);
  }
  return value;
}

void IntRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const uint32_t elems = info.block_elems, sums_per_block = elems == 32 ? 1 : 16;
  const ActRows& x = args.x;
  IntBlock w;
  for (uint32_t t0 = 0; t0 < x.rows; t0 += kTokenTile) {
    const uint32_t tokens = x.rows - t0 < kTokenTile ? x.rows - t0 : kTokenTile;
    for (uint32_t r = row_begin; r < row_end; ++r) {
      float acc[kTokenTile] = {};
      const uint8_t* row = args.weights + r * args.row_bytes;
      for (uint32_t b = 0; b < x.cols / elems; ++b) {
        ReadIntBlock(args.type, row + uint64_t{b} * info.block_bytes, &w);
        for (uint32_t i = 0; i < tokens; ++i) {
          const uint64_t t = t0 + i;
          const float value = BlockDot(w, x.q + t * x.q_stride + uint64_t{b} * elems,
                                       x.sums + t * x.sums_stride + b * sums_per_block, elems);
          acc[i] = acc[i] + x.scale[t * x.scale_stride + b] * value;
        }
      }
      for (uint32_t i = 0; i < tokens; ++i) {
        args.out[(t0 + i) * args.out_stride + r] = args.bias ? acc[i] + args.bias[r] : acc[i];
      }
    }
  }
}

void FloatRows(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  const WeightTypeInfo& info = InfoOf(args.type);
  const ActRows& x = args.x;
  float w[kFloatChunk];
  for (uint32_t t0 = 0; t0 < x.rows; t0 += kTokenTile) {
    const uint32_t tokens = x.rows - t0 < kTokenTile ? x.rows - t0 : kTokenTile;
    for (uint32_t r = row_begin; r < row_end; ++r) {
      float lanes[kTokenTile][8] = {};
      const uint8_t* row = args.weights + r * args.row_bytes;
      for (uint32_t c = 0; c < x.cols; c += kFloatChunk) {
        const uint32_t n = x.cols - c < kFloatChunk ? x.cols - c : kFloatChunk;
        DecodeRow(args.type, row + uint64_t{c} / info.block_elems * info.block_bytes, w, n);
        for (uint32_t i = 0; i < tokens; ++i) {
          DotLanes(w, x.f32 + (t0 + i) * x.f32_stride + c, n, lanes[i]);
        }
      }
      for (uint32_t i = 0; i < tokens; ++i) {
        const float sum = FoldLanes(lanes[i]);
        args.out[(t0 + i) * args.out_stride + r] = args.bias ? sum + args.bias[r] : sum;
      }
    }
  }
}

}  // namespace

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kF32) {
    FloatRows(args, row_begin, row_end);
  } else {
    IntRows(args, row_begin, row_end);
  }
}

}  // namespace sluice::scalar
