#include "model/exec.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// Enough parts per thread to even out a noisy neighbour, few enough that claiming one costs
// nothing.
constexpr uint32_t kPartsPerThread = 4;
// A part below this many weight bytes is not worth a hand-over.
constexpr uint64_t kPartBytesMin = 8 * 1024;

bool Wants(uint32_t formats, ActFormat format) {
  return (formats >> static_cast<uint32_t>(format)) & 1u;
}

uint64_t PartBytes(ActFormat format, uint32_t rows, uint32_t cols) {
  const uint64_t n = uint64_t{rows} * cols;
  return AlignUp(n, 64) + AlignUp(4 * rows * (ActScales(format, cols) + 1), 64) +
         AlignUp(2 * rows * (ActSums(format, cols) + 1), 64) + 192;
}

ActBuffer::Part PlacePart(Arena* arena, ActFormat format, uint32_t rows, uint32_t cols) {
  ActBuffer::Part part;
  part.q = arena->TakeArray<int8_t>(uint64_t{rows} * cols);
  part.scale = arena->TakeArray<float>(rows * (ActScales(format, cols) + 1));
  part.sums = arena->TakeArray<int16_t>(rows * (ActSums(format, cols) + 1));
  return part;
}

}  // namespace

uint64_t ActBuffer::Bytes(uint32_t rows, uint32_t cols, uint32_t formats) {
  uint64_t bytes = 0;
  for (ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    if (Wants(formats, format)) bytes += PartBytes(format, rows, cols);
  }
  return bytes;
}

ActBuffer ActBuffer::Place(Arena* arena, uint32_t rows, uint32_t cols, uint32_t formats) {
  ActBuffer buffer;
  buffer.rows = rows;
  buffer.cols = cols;
  if (Wants(formats, ActFormat::kQ8x32))
    buffer.x32 = PlacePart(arena, ActFormat::kQ8x32, rows, cols);
  if (Wants(formats, ActFormat::kQ8x256))
    buffer.x256 = PlacePart(arena, ActFormat::kQ8x256, rows, cols);
  return buffer;
}

ActRows Exec::Prepare(ActFormat format, const float* x, uint64_t x_stride, uint32_t rows,
                      uint32_t cols, const ActBuffer& buffer) {
  ActRows acts;
  acts.format = format;
  acts.rows = rows;
  acts.cols = cols;
  acts.f32 = x;
  acts.f32_stride = x_stride;
  if (format == ActFormat::kF32) return acts;
  const ActBuffer::Part& part = buffer.part(format);
  const uint64_t scales = ActScales(format, cols), sums = ActSums(format, cols);
  For(rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint32_t t = begin; t < end; ++t) {
      ops_->quantize(format, x + t * x_stride, cols, part.q + uint64_t{t} * cols,
                     part.scale + t * scales, part.sums + t * sums);
    }
  });
  acts.q = part.q;
  acts.scale = part.scale;
  acts.sums = part.sums;
  acts.q_stride = cols;
  acts.scale_stride = scales;
  acts.sums_stride = sums;
  return acts;
}

void Exec::Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
                   std::span<const Projection> jobs) {
  std::array<MatmulJob, kJobsMax> list;
  std::array<ActRows, 3> prepared;
  std::array<bool, 3> have = {};
  size_t n = 0;
  for (const Projection& job : jobs) {
    const ActFormat format = FormatFor(job.w->type);
    const auto f = static_cast<size_t>(format);
    if (!have[f]) {
      prepared[f] = Prepare(format, x, x_stride, rows, job.w->cols, buffer);
      have[f] = true;
    }
    MatmulArgs args;
    args.weights = job.w->data;
    args.row_bytes = job.w->row_bytes;
    args.type = job.w->type;
    args.x = prepared[f];
    args.bias = job.bias;
    args.out = job.out;
    args.out_stride = job.out_stride;
    list[n++] = {args, job.w->rows};
  }
  Run({list.data(), n});
}

void Exec::Run(std::span<const MatmulJob> jobs) {
  Idle();
  // One grain in bytes for the whole region, so that parts weigh about the same.
  uint64_t total = 0;
  for (const MatmulJob& job : jobs) total += job.rows * job.args.row_bytes;
  const uint64_t parts_wanted = uint64_t{kPartsPerThread} * static_cast<uint64_t>(pool_->threads());
  const uint64_t part_bytes = std::max(total / parts_wanted + 1, kPartBytesMin);
  std::array<uint32_t, kJobsMax + 1> first;
  std::array<uint32_t, kJobsMax> grain;
  uint32_t parts = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const uint64_t rows =
        std::max<uint64_t>(1, part_bytes / std::max<uint64_t>(1, jobs[i].args.row_bytes));
    grain[i] = static_cast<uint32_t>(std::min<uint64_t>(AlignUp(rows, 8), jobs[i].rows));
    first[i] = parts;
    parts += grain[i] == 0 ? 0 : (jobs[i].rows + grain[i] - 1) / grain[i];
  }
  first[jobs.size()] = parts;
  pool_->Run(static_cast<int>(parts), [&](int part) {
    size_t i = 0;
    while (first[i + 1] <= static_cast<uint32_t>(part)) ++i;
    const uint32_t begin = (static_cast<uint32_t>(part) - first[i]) * grain[i];
    ops_->matmul(jobs[i].args, begin, std::min(begin + grain[i], jobs[i].rows));
  });
}

void Exec::For(uint32_t n, uint32_t grain, FunctionRef<void(uint32_t, uint32_t)> fn) {
  if (n == 0) return;
  if (n < grain * 2 || pool_->threads() == 1) return fn(0, n);
  const uint32_t parts_max = kPartsPerThread * static_cast<uint32_t>(pool_->threads());
  const uint32_t step = std::max(grain, (n + parts_max - 1) / parts_max);
  pool_->Run(static_cast<int>((n + step - 1) / step), [&](int part) {
    const uint32_t begin = static_cast<uint32_t>(part) * step;
    fn(begin, std::min(begin + step, n));
  });
}

}  // namespace sluice
