// Inputs for measuring kernels: weights, activations, KV pages, logits, sized to defeat the caches
// where that is the point.
//
// Contract: plain values that own their memory; deterministic; made once, outside the time that is
// taken. Shared by `sluice bench --kernels` and the benchmark binary.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "quant/types.h"

namespace sluice {

// The weight types that models hold and matmul takes.
std::vector<WeightType> MeasuredTypes();

// Four times the last-level cache, at least 64 MiB, at most 512 MiB and a quarter of what is free.
uint64_t WorkingSetBytes();

// Bytes that are finite numbers in every format: no exponent byte above 0x3b.
std::vector<uint8_t> FiniteBytes(uint64_t n);
// The same bytes with exponents as models have them where a format needs it: subnormal scales would
// measure the processor's slow path. Call before each type.
void FixExponents(WeightType type, std::vector<uint8_t>* bytes);

std::vector<float> NormalFloats(uint64_t n, uint32_t seed);

// A product of the first rows of `weights` (owned by the caller) with `tokens` activations.
struct MatmulFixture {
  static constexpr uint32_t kCols = 2048;
  MatmulFixture(const Ops& ops, WeightType type, uint32_t tokens, uint32_t rows,
                const uint8_t* weights);
  MatmulArgs args;
  std::vector<float> f32, scale, out;
  std::vector<int8_t> q;
  std::vector<int16_t> sums;
};

// KV pages of several heads, each its own list of pages, and queries for them.
struct AttentionFixture {
  static constexpr uint32_t kDim = 128;
  AttentionFixture(const Ops& ops, KvFormat format, uint32_t group, uint32_t positions,
                   uint32_t heads);
  AttentionArgs Args(uint32_t head);
  uint64_t bytes() const { return kv.size(); }

  KvFormat format;
  uint32_t group, positions, heads;
  uint64_t k_row, v_row, head_bytes;
  std::vector<uint8_t> kv;
  std::vector<float> q, out;
  std::vector<const uint8_t*> pages;  // [heads][pages of one]
};

}  // namespace sluice
