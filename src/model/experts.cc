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

// The input rows of a task in a format: in place for a single row, gathered otherwise.
ActRows InputOf(const Exec& exec, ActFormat format, const ModelConfig& c, const MoeRows& in,
                const ExpertScratch& s, const ExpertTask& task, uint64_t base) {
  const bool floats = format == ActFormat::kF32;
  const uint64_t width = c.hidden;
  if (task.n == 1) {
    const uint64_t row = task.rows[0];
    const float* f32 = floats ? in.in + row * width : nullptr;
    return exec.View(format, {f32, width, 1, c.hidden, &in.in_act, row});
  }
  float* gather = floats ? s.gather + base * width : nullptr;
  for (uint32_t i = 0; i < task.n; ++i) {
    if (floats) {
      std::copy_n(in.in + task.rows[i] * width, width, gather + i * width);
    } else {
      CopyRow(exec, format, in.in_act, task.rows[i], s.gather_act, base + i, c.hidden);
    }
  }
  return exec.View(format, {gather, width, task.n, c.hidden, &s.gather_act, base});
}

MatmulArgs ArgsOf(const Matrix& w, const ActRows& x, const float* bias) {
  MatmulArgs args;
  args.weights = w.data;
  args.row_bytes = w.row_bytes;
  args.type = w.type;
  args.x = x;
  args.bias = bias;
  return args;
}

GluArgs UnitOf(const ModelConfig& c) {
  GluArgs glu;
  glu.glu = c.arch == Arch::kGptOss ? Glu::kSwigluClamped : Glu::kSilu;
  glu.limit = c.swiglu_limit;
  glu.alpha = c.swiglu_alpha;
  return glu;
}

// gate, up and the unit of every task: packed rows from 0 on, in the format of the down product.
void RunGates(Exec& exec, const ModelConfig& c, const MoeRows& in, const ExpertScratch& s,
              std::span<const ExpertTask> tasks) {
  std::array<GluJob, kExpertWaveMax> jobs;
  size_t n = 0;
  uint32_t base = 0;
  for (const ExpertTask& task : tasks) {
    const ActFormat gate_format = exec.FormatFor(task.w.gate.type),
                    up_format = exec.FormatFor(task.w.up.type);
    const ActRows x = InputOf(exec, gate_format, c, in, s, task, base);
    const ActRows y = up_format == gate_format ? x : InputOf(exec, up_format, c, in, s, task, base);
    jobs[n++] = {ArgsOf(task.w.gate, x, task.w.gate_bias), ArgsOf(task.w.up, y, task.w.up_bias),
                 base};
    base += task.n;
  }
  exec.RunGlu({jobs.data(), n}, {.unit = UnitOf(c),
                                 .n = c.moe.expert_ff,
                                 .format = exec.FormatFor(tasks[0].w.down.type),
                                 .gate = s.gate,
                                 .up = s.up,
                                 .act = &s.act});
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
  RunGates(exec, c, in, s, tasks);
  const uint32_t ff = c.moe.expert_ff;
  std::array<MatmulJob, Exec::kJobsMax> jobs;
  size_t n = 0;
  uint64_t base = 0;
  for (const ExpertTask& task : tasks) {
    const ActRows x = exec.View(exec.FormatFor(task.w.down.type),
                                {s.gate + base * ff, ff, task.n, ff, &s.act, base});
    MatmulArgs args = ArgsOf(task.w.down, x, task.w.down_bias);
    args.out = task.out;
    args.out_stride = c.hidden;
    jobs[n++] = {args, task.w.down.rows};
    base += task.n;
  }
  exec.Run({jobs.data(), n});
}

}  // namespace sluice
