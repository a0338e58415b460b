#include "runtime/unit_layout.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"

namespace sluice {
namespace {

constexpr uint64_t kReadsPerUnitMax = 64;

struct Run {
  uint32_t file;
  uint64_t begin, end;
};

void SplitRun(const Run& run, uint64_t piece, uint64_t buffer_offset,
              std::vector<UnitRead>* reads) {
  for (uint64_t at = run.begin; at < run.end; at += piece) {
    const uint64_t length = std::min(piece, run.end - at);
    reads->push_back({run.file, at, length, buffer_offset + (at - run.begin)});
  }
}

}  // namespace

UnitLayout LayOutUnit(std::span<const MatrixSpec* const> matrices, uint64_t alignment) {
  UnitLayout layout;
  std::vector<uint32_t> order(matrices.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Extent &x = matrices[a]->extent, &y = matrices[b]->extent;
    return x.file != y.file ? x.file < y.file : x.offset < y.offset;
  });
  std::vector<Run> runs;
  for (uint32_t i : order) {
    const Extent& e = matrices[i]->extent;
    const uint64_t begin = AlignDown(e.offset, alignment),
                   end = AlignUp(e.offset + e.bytes, alignment);
    layout.payload_bytes += e.bytes;
    if (!runs.empty() && runs.back().file == e.file &&
        begin <= runs.back().end + kUnitGapBytesMax) {
      runs.back().end = std::max(runs.back().end, end);
    } else {
      runs.push_back({e.file, begin, end});
    }
  }
  uint64_t total = 0;
  for (const Run& run : runs) total += run.end - run.begin;
  const uint64_t piece = std::max(kUnitReadBytesMax, AlignUp(total / kReadsPerUnitMax, alignment));
  layout.matrix_offset.resize(matrices.size());
  size_t r = 0;
  uint64_t base = 0;  // buffer offset of run r
  for (uint32_t i : order) {
    const Extent& e = matrices[i]->extent;
    while (runs[r].file != e.file || e.offset >= runs[r].end)
      base += runs[r].end - runs[r].begin, ++r;
    layout.matrix_offset[i] = base + (e.offset - runs[r].begin);
  }
  base = 0;
  for (const Run& run : runs) {
    SplitRun(run, piece, base, &layout.reads);
    base += run.end - run.begin;
  }
  layout.bytes = base;
  return layout;
}

Matrix ViewOf(const MatrixSpec& spec, const uint8_t* data) {
  return {data, spec.type, spec.rows, spec.cols, spec.row_bytes};
}

}  // namespace sluice
