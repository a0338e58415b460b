#include "model/exec.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// Kernels walk a range as eight parallel streams, so parts are multiples of eight rows.
constexpr uint32_t kRowGrain = 8;
// A part below this many weight bytes is not worth a hand-over.
constexpr uint64_t kPartBytesMin = 32 * 1024;
// A tile of products that is used up where it is made, in floats: 64 tokens of 256 rows (the
// longest block). The gap keeps neighbouring tokens' rows out of each other's cache sets.
constexpr uint32_t kTileGap = 16, kTileFloats = 64 * (256 + kTileGap);
// Where it lies on the stack it is half as large: the plan counts stacks.
constexpr uint32_t kStackFloats = 64 * (128 + kTileGap);
// Gated units of up to this many tokens on average read their weights from memory: ranges must be
// long. And with fewer blocks per thread threads would wait for each other.
constexpr uint32_t kFewTokens = 8, kBlocksPerThreadMin = 6;
// Elements of a gated row that one thread takes at once; whole blocks.
constexpr uint32_t kPiece = 2048;

constexpr uint32_t kBothInts = FormatBit(ActFormat::kQ8x32) | FormatBit(ActFormat::kQ8x256);

uint32_t BlockOf(ActFormat format) {
  return format == ActFormat::kQ8x256 ? 256 : format == ActFormat::kQ8x32 ? 32 : 1;
}

// Rows of such a tile, a multiple of grain.
uint32_t TileRows(uint32_t floats, uint32_t tokens, uint32_t grain) {
  return (floats / tokens - kTileGap) / grain * grain;
}

bool Wants(uint32_t formats, ActFormat format) { return (formats & FormatBit(format)) != 0; }

// Without the formats of which n elements are no whole blocks: no weights have such rows (a
// mixture's input is asked for in every format of the model, gpt-oss has 2,880 columns).
uint32_t Fitting(uint32_t formats, uint32_t n) {
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    if (n % BlockOf(format) != 0) formats &= ~FormatBit(format);
  }
  return formats;
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

ActOut Exec::Out(ActFormat format, const ActBuffer& buffer, uint64_t row, uint32_t cols,
                 uint32_t first_col) const {
  if (format == ActFormat::kF32) return {};
  const ActBuffer::Part& part = buffer.part(format);
  const uint64_t scales = ActScales(format, cols), sums = ActSums(format, cols), at = row * planes_;
  return {.format = format,
          .planes = planes_,
          .q = part.q + at * cols + first_col,
          .scale = part.scale + at * scales + ActScales(format, first_col),
          .sums = part.sums + at * sums + ActSums(format, first_col),
          .q_plane = cols,
          .scale_plane = scales,
          .sums_plane = sums};
}

ActRows Exec::View(ActFormat format, const Operand& x) const {
  ActRows rows;
  rows.format = format;
  rows.rows = x.rows;
  rows.cols = x.cols;
  if (format == ActFormat::kF32) {
    rows.f32 = x.f32;
    rows.f32_stride = x.stride;
    return rows;
  }
  const ActOut first = Out(format, *x.act, x.first, x.cols);
  rows.rows = x.rows * planes_;
  rows.q = first.q;
  rows.scale = first.scale;
  rows.sums = first.sums;
  rows.q_stride = first.q_plane;
  rows.scale_stride = first.scale_plane;
  rows.sums_stride = first.sums_plane;
  return rows;
}

MatmulArgs Exec::ArgsOf(const Matrix& w, const Operand& x, const float* bias) const {
  MatmulArgs args;
  args.weights = w.data;
  args.row_bytes = w.row_bytes;
  args.type = w.type;
  args.x = View(FormatFor(w.type), x);
  args.bias = bias;
  return args;
}

void Exec::NormRow(NormArgs args, const ActBuffer& buffer, uint64_t row, uint32_t formats) const {
  formats = Fitting(formats, args.n);
  const bool both = (formats & kBothInts) == kBothInts;
  const ActFormat format = Wants(formats, ActFormat::kQ8x32)    ? ActFormat::kQ8x32
                           : Wants(formats, ActFormat::kQ8x256) ? ActFormat::kQ8x256
                                                                : ActFormat::kF32;
  if (!both && !Wants(formats, ActFormat::kF32)) args.y = nullptr;
  args.out = Out(format, buffer, row, args.n);
  ops_->norm_row(args);
  if (both) QuantizeRow(args.y, args.n, buffer, row, FormatBit(ActFormat::kQ8x256));
}

void Exec::QuantizeRow(const float* x, uint32_t n, const ActBuffer& buffer, uint64_t row,
                       uint32_t formats) const {
  formats = Fitting(formats, n);
  for (const ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    if (Wants(formats, format)) ops_->quantize_row(x, n, Out(format, buffer, row, n));
  }
}

Operand Exec::Quantize(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
                       uint32_t cols, uint32_t formats) {
  if ((formats & kBothInts) != 0) {
    For(rows, 4, [&](uint32_t begin, uint32_t end) {
      for (uint64_t t = begin; t < end; ++t)
        QuantizeRow(x + t * x_stride, cols, buffer, t, formats);
    });
  }
  return {x, x_stride, rows, cols, &buffer, 0, formats | FormatBit(ActFormat::kF32)};
}

void Exec::Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
                   std::span<const Projection> jobs) {
  uint32_t formats = 0;
  for (const Projection& job : jobs) formats |= FormatBit(FormatFor(job.w->type));
  Project(Quantize(buffer, x, x_stride, rows, jobs.front().w->cols, formats), jobs);
}

void Exec::Project(const Operand& x, std::span<const Projection> jobs) {
  std::array<MatmulJob, kJobsMax> list;
  size_t n = 0;
  for (const Projection& job : jobs) {
    MatmulArgs args = ArgsOf(*job.w, x, job.bias);
    args.out = job.out;
    args.out_stride = job.out_stride;
    list[n++] = {args, job.w->rows};
  }
  Run({list.data(), n});
}

void Exec::RunRegion(std::span<const PartJob> jobs, uint32_t grain,
                     FunctionRef<void(const Part&)> fn) {
  Idle();
  const PartList parts(jobs, pool_->active_threads(), grain, kPartBytesMin);
  pool_->Run(static_cast<int>(parts.size()), [&](int i) { fn(parts[static_cast<uint32_t>(i)]); });
}

void Exec::Run(std::span<const MatmulJob> jobs) {
  std::array<PartJob, kJobsMax> weights;
  for (size_t i = 0; i < jobs.size(); ++i) weights[i] = {jobs[i].rows, jobs[i].args.row_bytes};
  RunRegion({weights.data(), jobs.size()}, kRowGrain, [&](const Part& part) {
    const MatmulJob& job = jobs[part.job];
    if (job.add_to != nullptr) return AddPart(job, part.begin, part.end);
    RunPart(job.args, part.begin, part.end);
  });
}

void Exec::RunGlu(std::span<const GluJob> jobs, const GluRows& rows) {
  const auto n = static_cast<uint32_t>(jobs.size()),
             threads = static_cast<uint32_t>(pool_->active_threads());
  const uint32_t block = BlockOf(rows.format),
                 tokens = jobs[n - 1].row + TokensOf(jobs[n - 1].gate.x);
  if (tokens <= kFewTokens * n ||
      (block > 32 && rows.n / block * n < kBlocksPerThreadMin * threads))
    return GluPieces(jobs, rows);
  std::array<PartJob, kJobsMax> weights;
  for (uint32_t i = 0; i < n; ++i)
    weights[i] = {rows.n, jobs[i].gate.row_bytes + jobs[i].up.row_bytes};
  const uint32_t grain = std::max(block, kRowGrain);
  RunRegion({weights.data(), n}, grain,
            [&](const Part& part) { GluPart(jobs[part.job], rows, part, grain); });
}

// All products in one region, then the units: pieces of rows in another where there are several.
void Exec::GluPieces(std::span<const GluJob> jobs, const GluRows& rows) {
  std::array<MatmulJob, kJobsMax> products;
  size_t n = 0;
  for (const GluJob& job : jobs) {
    MatmulArgs gate = job.gate, up = job.up;
    gate.out = rows.gate + uint64_t{job.row} * rows.n;
    up.out = rows.up + uint64_t{job.row} * rows.n;
    gate.out_stride = up.out_stride = rows.n;
    products[n++] = {gate, rows.n};
    products[n++] = {up, rows.n};
  }
  Run({products.data(), n});
  const uint32_t tokens = jobs.back().row + TokensOf(jobs.back().gate.x),
                 pieces = (rows.n + kPiece - 1) / kPiece;
  For(tokens * pieces, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const uint64_t row = i / pieces, col = uint64_t{i % pieces} * kPiece;
      GluArgs unit = rows.unit;
      unit.gate = rows.gate + row * rows.n + col;
      unit.up = rows.up + row * rows.n + col;
      unit.n = static_cast<uint32_t>(std::min<uint64_t>(kPiece, rows.n - col));
      if (rows.format == ActFormat::kF32) {
        unit.y = rows.gate + row * rows.n + col;
      } else {
        unit.out = Out(rows.format, *rows.act, row, rows.n, static_cast<uint32_t>(col));
      }
      ops_->glu_row(unit);
    }
  });
}

uint32_t Exec::TokensOf(const ActRows& x) const {
  return x.format == ActFormat::kF32 ? x.rows : x.rows / planes_;
}

// Some tokens of a product, from weight row `row` on.
MatmulArgs Exec::Slice(const MatmulArgs& args, uint32_t first, uint32_t tokens,
                       uint32_t row) const {
  MatmulArgs slice = args;
  slice.weights += row * args.row_bytes;
  if (args.bias != nullptr) slice.bias += row;
  if (args.x.format == ActFormat::kF32) {
    slice.x.rows = tokens;
    slice.x.f32 += first * args.x.f32_stride;
    return slice;
  }
  slice.x.rows = planes_ * tokens;
  slice.x.q += planes_ * first * args.x.q_stride;
  slice.x.scale += planes_ * first * args.x.scale_stride;
  slice.x.sums += planes_ * first * args.x.sums_stride;
  return slice;
}

void Exec::RunPart(const MatmulArgs& args, uint32_t begin, uint32_t end) const {
  if (planes_ == 1 || args.x.format == ActFormat::kF32) return ops_->matmul(args, begin, end);
  SumPlanes(args, begin, end);
}

// Both planes of some rows into a corner of the stack, then their sum to its place. Long ranges
// matter to the kernels (docs/kernels.md), so a single token takes them whole.
void Exec::SumPlanes(const MatmulArgs& args, uint32_t begin, uint32_t end) const {
  constexpr uint32_t kFloats = 4096;
  float both[kFloats];
  const uint32_t tokens = args.x.rows / 2;
  for (uint32_t first = 0; first < tokens; first += kTokensAtOnce) {
    const uint32_t n = std::min(kTokensAtOnce, tokens - first),
                   step = kFloats / (2 * n) / kRowGrain * kRowGrain;
    for (uint32_t row = begin; row < end; row += step) {
      const uint32_t rows = std::min(step, end - row);
      MatmulArgs part = Slice(args, first, n, row);
      part.bias = nullptr;
      part.out = both;
      part.out_stride = step;
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

void Exec::AddPart(const MatmulJob& job, uint32_t begin, uint32_t end) const {
  float product[kStackFloats];
  const uint32_t tokens = TokensOf(job.args.x);
  const uint32_t step = TileRows(kStackFloats, std::min(tokens, kTokensAtOnce), kRowGrain);
  for (uint32_t row = begin; row < end; row += step) {
    const uint32_t rows = std::min(step, end - row);
    for (uint32_t first = 0; first < tokens; first += kTokensAtOnce) {
      const uint32_t n = std::min(kTokensAtOnce, tokens - first);
      MatmulArgs part = Slice(job.args, first, n, row);
      part.out = product;
      part.out_stride = step + kTileGap;
      RunPart(part, 0, rows);
      for (uint32_t t = 0; t < n; ++t) {
        ops_->add(product + t * part.out_stride, job.add_scale, rows,
                  job.add_to + (first + t) * job.args.out_stride + row);
      }
    }
  }
}

// The part's columns of rows.gate and rows.up are its own. Where the result is int8 it takes them
// as one run of memory and writes the same small tile again and again.
void Exec::GluPart(const GluJob& job, const GluRows& rows, const Part& part, uint32_t grain) const {
  const uint32_t tokens = TokensOf(job.gate.x), width = part.end - part.begin;
  const bool keep = rows.format == ActFormat::kF32;
  const uint32_t step = TileRows(kTileFloats, std::min(tokens, kTokensAtOnce), grain);
  const uint64_t corner = uint64_t{job.row} * rows.n + uint64_t{part.begin} * tokens;
  GluArgs unit = rows.unit;
  for (uint32_t row = part.begin; row < part.end; row += step) {
    unit.n = std::min(step, part.end - row);
    for (uint32_t first = 0; first < tokens; first += kTokensAtOnce) {
      const uint32_t n = std::min(kTokensAtOnce, tokens - first);
      const uint64_t stride = keep ? rows.n : std::min(unit.n + kTileGap, width),
                     at = keep ? uint64_t{job.row + first} * rows.n + row : corner;
      MatmulArgs gate = Slice(job.gate, first, n, row), up = Slice(job.up, first, n, row);
      gate.out = rows.gate + at;
      up.out = rows.up + at;
      gate.out_stride = up.out_stride = stride;
      RunPart(gate, 0, unit.n);
      RunPart(up, 0, unit.n);
      for (uint64_t t = 0; t < n; ++t) {
        unit.gate = gate.out + t * stride;
        unit.up = up.out + t * stride;
        if (keep) {
          unit.y = gate.out + t * stride;
        } else {
          unit.out = Out(rows.format, *rows.act, job.row + first + t, rows.n, row);
        }
        ops_->glu_row(unit);
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
