#include "model/experts.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

void CopyRow(const Exec& exec, ActFormat format, const ActBuffer& from, uint64_t row,
             const ActBuffer& to, uint64_t at, uint32_t cols) {
  const ActBuffer::Part &a = from.part(format), &b = to.part(format);
  const uint64_t planes = exec.planes(), q = planes * cols,
                 scales = planes * ActScales(format, cols), sums = planes * ActSums(format, cols);
  std::copy_n(a.q + row * q, q, b.q + at * q);
  std::copy_n(a.scale + row * scales, scales, b.scale + at * scales);
  std::copy_n(a.sums + row * sums, sums, b.sums + at * sums);
}

ActRows View(const Exec& exec, ActFormat format, const ActBuffer& buffer, const float* f32,
             uint64_t row, uint32_t rows, uint32_t cols) {
  ActRows x;
  x.format = format;
  x.rows = rows;
  x.cols = cols;
  if (format == ActFormat::kF32) {
    x.f32 = f32 + row * cols;
    x.f32_stride = cols;
    return x;
  }
  const ActBuffer::Part& part = buffer.part(format);
  x.rows = rows * exec.planes();
  x.q_stride = cols;
  x.scale_stride = ActScales(format, cols);
  x.sums_stride = ActSums(format, cols);
  x.q = part.q + row * exec.planes() * x.q_stride;
  x.scale = part.scale + row * exec.planes() * x.scale_stride;
  x.sums = part.sums + row * exec.planes() * x.sums_stride;
  return x;
}

// The input rows of a task in a format: in place for a single row, gathered otherwise.
ActRows Input(const Exec& exec, ActFormat format, const ModelConfig& c, const MoeRows& in,
              const ExpertScratch& s, const ExpertTask& task, uint64_t base) {
  if (task.n == 1) return View(exec, format, in.in_act, in.in, task.rows[0], 1, c.hidden);
  for (uint32_t i = 0; i < task.n; ++i) {
    if (format == ActFormat::kF32) {
      std::copy_n(in.in + uint64_t{task.rows[i]} * c.hidden, c.hidden,
                  s.gather + (base + i) * c.hidden);
    } else {
      CopyRow(exec, format, in.in_act, task.rows[i], s.gather_act, base + i, c.hidden);
    }
  }
  return View(exec, format, s.gather_act, s.gather, base, task.n, c.hidden);
}

MatmulJob Job(const Matrix& w, const ActRows& x, const float* bias, float* out,
              uint64_t out_stride) {
  MatmulArgs args;
  args.weights = w.data;
  args.row_bytes = w.row_bytes;
  args.type = w.type;
  args.x = x;
  args.bias = bias;
  args.out = out;
  args.out_stride = out_stride;
  return {args, w.rows};
}

// gate <- activation(gate, up), then quantised for the down projection; packed rows [0, rows).
void Activate(Exec& exec, const ModelConfig& c, const ExpertScratch& s, uint32_t ff, uint32_t rows,
              uint32_t formats) {
  const Ops& ops = exec.ops();
  exec.For(rows, 1, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      float* gate = s.gate + i * ff;
      if (c.arch == Arch::kGptOss) {
        ops.swiglu_clamped_mul(gate, s.up + i * ff, c.swiglu_limit, c.swiglu_alpha, ff, gate);
      } else {
        ops.silu_mul(gate, s.up + i * ff, ff, gate);
      }
      for (ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
        if (((formats >> static_cast<uint32_t>(format)) & 1u) == 0) continue;
        exec.QuantizeRow(format, gate, ff, s.act, i);
      }
    }
  });
}

}  // namespace

uint64_t ExpertScratch::Bytes(const ModelConfig& c, uint32_t rows, uint32_t formats,
                              bool float_act) {
  const uint64_t gather =
      float_act || (formats & 1u) != 0 ? AlignUp(uint64_t{rows} * c.hidden * 4, 64) : 0;
  return 2 * AlignUp(uint64_t{rows} * c.moe.expert_ff * 4, 64) + gather +
         ActBuffer::Bytes(rows, c.hidden, formats) +
         ActBuffer::Bytes(rows, c.moe.expert_ff, formats) + 512;
}

ExpertScratch ExpertScratch::Place(Arena* arena, const ModelConfig& c, uint32_t rows,
                                   uint32_t formats, bool float_act) {
  ExpertScratch s;
  s.rows = rows;
  s.gate = arena->TakeArray<float>(uint64_t{rows} * c.moe.expert_ff);
  s.up = arena->TakeArray<float>(uint64_t{rows} * c.moe.expert_ff);
  if (float_act || (formats & 1u) != 0)
    s.gather = arena->TakeArray<float>(uint64_t{rows} * c.hidden);
  s.gather_act = ActBuffer::Place(arena, rows, c.hidden, formats);
  s.act = ActBuffer::Place(arena, rows, c.moe.expert_ff, formats);
  return s;
}

void RunExperts(Exec& exec, const ModelConfig& c, const MoeRows& in, const ExpertScratch& s,
                std::span<const ExpertTask> tasks) {
  std::array<MatmulJob, Exec::kJobsMax> jobs;
  size_t n = 0;
  uint32_t base = 0, down_formats = 0;
  const uint32_t ff = c.moe.expert_ff;
  for (const ExpertTask& task : tasks) {
    const ActFormat gate_format = exec.FormatFor(task.w.gate.type),
                    up_format = exec.FormatFor(task.w.up.type);
    const ActRows x = Input(exec, gate_format, c, in, s, task, base);
    const ActRows y = up_format == gate_format ? x : Input(exec, up_format, c, in, s, task, base);
    jobs[n++] = Job(task.w.gate, x, task.w.gate_bias, s.gate + uint64_t{base} * ff, ff);
    jobs[n++] = Job(task.w.up, y, task.w.up_bias, s.up + uint64_t{base} * ff, ff);
    down_formats |= 1u << static_cast<uint32_t>(exec.FormatFor(task.w.down.type));
    base += task.n;
  }
  exec.Run({jobs.data(), n});
  Activate(exec, c, s, ff, base, down_formats);
  n = 0;
  base = 0;
  for (const ExpertTask& task : tasks) {
    const ActRows x = View(exec, exec.FormatFor(task.w.down.type), s.act, s.gate, base, task.n, ff);
    jobs[n++] = Job(task.w.down, x, task.w.down_bias, task.out, c.hidden);
    base += task.n;
  }
  exec.Run({jobs.data(), n});
}

}  // namespace sluice
