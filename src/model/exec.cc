#include "model/exec.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// Kernels walk a range as eight parallel streams, so parts are multiples of eight rows.
constexpr uint32_t kRowGrain = 8;
// A part below this many weight bytes is not worth a hand-over.
constexpr uint64_t kPartBytesMin = 32 * 1024;

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
  if ((formats & kTwoPlanes) != 0) rows *= 2;
  uint64_t bytes = 0;
  for (ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    if (Wants(formats, format)) bytes += PartBytes(format, rows, cols);
  }
  return bytes;
}

ActBuffer ActBuffer::Place(Arena* arena, uint32_t rows, uint32_t cols, uint32_t formats) {
  if ((formats & kTwoPlanes) != 0) rows *= 2;
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
  For(rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint32_t t = begin; t < end; ++t) QuantizeRow(format, x + t * x_stride, cols, buffer, t);
  });
  acts.rows = rows * planes_;
  acts.q = part.q;
  acts.scale = part.scale;
  acts.sums = part.sums;
  acts.q_stride = cols;
  acts.scale_stride = ActScales(format, cols);
  acts.sums_stride = ActSums(format, cols);
  return acts;
}

void Exec::QuantizeRow(ActFormat format, const float* x, uint32_t n, const ActBuffer& buffer,
                       uint64_t row) const {
  const ActBuffer::Part& part = buffer.part(format);
  const uint64_t scales = ActScales(format, n), sums = ActSums(format, n), at = row * planes_;
  int8_t* q = part.q + at * n;
  float* scale = part.scale + at * scales;
  ops_->quantize(format, x, n, q, scale, part.sums + at * sums);
  if (planes_ == 1) return;
  // The second plane, block by block: what the first one rounded away.
  const uint32_t block = n / static_cast<uint32_t>(scales);
  float rest[256];
  for (uint32_t b = 0; b < scales; ++b) {
    for (uint32_t i = 0; i < block; ++i)
      rest[i] = x[b * block + i] - scale[b] * static_cast<float>(q[b * block + i]);
    ops_->quantize(format, rest, block, q + n + b * block, scale + scales + b,
                   part.sums + (at + 1) * sums + b * (sums / scales));
  }
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
  std::array<PartJob, kJobsMax> weights;
  for (size_t i = 0; i < jobs.size(); ++i) weights[i] = {jobs[i].rows, jobs[i].args.row_bytes};
  const PartList parts({weights.data(), jobs.size()}, pool_->active_threads(), kRowGrain,
                       kPartBytesMin);
  pool_->Run(static_cast<int>(parts.size()), [&](int i) {
    const Part& part = parts[static_cast<uint32_t>(i)];
    RunPart(jobs[part.job], part.begin, part.end);
  });
}

void Exec::RunPart(const MatmulJob& job, uint32_t begin, uint32_t end) const {
  const MatmulArgs& args = job.args;
  if (planes_ == 1 || args.x.format == ActFormat::kF32) return ops_->matmul(args, begin, end);
  // Both planes of some rows into a corner of the stack, then their sum to its place. Long ranges
  // matter to the kernels (docs/kernels.md), so a single token takes them whole.
  constexpr uint32_t kFloats = 4096, kTokens = 64;
  float both[kFloats];
  const uint32_t tokens = args.x.rows / 2;
  for (uint32_t first = 0; first < tokens; first += kTokens) {
    const uint32_t n = std::min(kTokens, tokens - first), step = kFloats / (2 * n) / 8 * 8;
    MatmulArgs part = args;
    part.bias = nullptr;
    part.x.rows = 2 * n;
    part.x.q += 2 * first * args.x.q_stride;
    part.x.scale += 2 * first * args.x.scale_stride;
    part.x.sums += 2 * first * args.x.sums_stride;
    part.out = both;
    part.out_stride = step;
    for (uint32_t row = begin; row < end; row += step) {
      const uint32_t rows = std::min(step, end - row);
      part.weights = args.weights + row * args.row_bytes;
      ops_->matmul(part, 0, rows);
      for (uint32_t t = 0; t < n; ++t) {
        const float *one = both + 2 * t * step, *two = one + step;
        float* out = args.out + (first + t) * args.out_stride + row;
        for (uint32_t r = 0; r < rows; ++r) {
          out[r] = one[r] + two[r] + (args.bias == nullptr ? 0.0f : args.bias[row + r]);
        }
      }
    }
  }
}

void Exec::For(uint32_t n, uint32_t grain, FunctionRef<void(uint32_t, uint32_t)> fn) {
  if (n == 0) return;
  if (n < grain * 2 || pool_->active_threads() == 1) return fn(0, n);
  const PartJob job{n, 1};
  const PartList parts({&job, 1}, pool_->active_threads(), grain, grain);
  pool_->Run(static_cast<int>(parts.size()), [&](int i) {
    fn(parts[static_cast<uint32_t>(i)].begin, parts[static_cast<uint32_t>(i)].end);
  });
}

}  // namespace sluice
