// For bench/kernels/instructions.py: one product per type and set of rows, with a call of Mark()
// before and after each, which an emulator's log of instructions shows.
//
//   products ISA TOKENS ROWS      types on standard output: name, bytes of a row
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/ops.h"

extern "C" __attribute__((noinline)) void Mark() { asm volatile(""); }

namespace {

using namespace sluice;

constexpr uint32_t kCols = 4096;
constexpr WeightType kTypes[] = {
    WeightType::kQ4_0,    WeightType::kQ4_1,    WeightType::kQ5_0,   WeightType::kQ5_1,
    WeightType::kQ8_0,    WeightType::kIQ4_NL,  WeightType::kMXFP4,  WeightType::kQ2_K,
    WeightType::kQ3_K,    WeightType::kQ4_K,    WeightType::kQ5_K,   WeightType::kQ6_K,
    WeightType::kIQ4_XS,  WeightType::kTQ1_0,   WeightType::kTQ2_0,  WeightType::kIQ1_S,
    WeightType::kIQ1_M,   WeightType::kIQ2_XXS, WeightType::kIQ2_XS, WeightType::kIQ2_S,
    WeightType::kIQ3_XXS, WeightType::kIQ3_S};

void Multiply(const Ops& ops, WeightType type, uint32_t tokens, uint32_t rows) {
  const WeightTypeInfo& info = InfoOf(type);
  const ActFormat format = ActFormatOf(type);
  const uint64_t row_bytes = kCols / info.block_elems * info.block_bytes;
  const uint64_t scales = ActScales(format, kCols), sums = ActSums(format, kCols);
  const std::vector<uint8_t> weights(2 * rows * row_bytes, 0x21);
  const std::vector<int8_t> q(tokens * kCols, 3);
  const std::vector<float> scale(tokens * scales, 1.0f);
  const std::vector<int16_t> sum(tokens * sums, 5);
  std::vector<float> out(uint64_t{tokens} * 2 * rows);
  const MatmulArgs args{.weights = weights.data(),
                        .row_bytes = row_bytes,
                        .type = type,
                        .x = {.format = format,
                              .rows = tokens,
                              .cols = kCols,
                              .q = q.data(),
                              .scale = scale.data(),
                              .sums = sum.data(),
                              .q_stride = kCols,
                              .scale_stride = scales,
                              .sums_stride = sums},
                        .out = out.data(),
                        .out_stride = 2 * uint64_t{rows}};
  for (const uint32_t end : {rows, 2 * rows}) {
    Mark();
    ops.matmul(args, 0, end);
    Mark();
  }
  std::printf("%s %llu\n", info.name, static_cast<unsigned long long>(row_bytes));
}

}  // namespace

int main(int argc, char** argv) {
  const Ops* ops = argc == 4 ? GetOps(argv[1]) : nullptr;
  if (ops == nullptr) return 2;
  for (const WeightType type : kTypes) {
    if (ActFormatOf(type) != ActFormat::kF32) {  // a build may lack the grids of the codebook types
      Multiply(*ops, type, static_cast<uint32_t>(std::atoi(argv[2])),
               static_cast<uint32_t>(std::atoi(argv[3])));
    }
  }
  return 0;
}
