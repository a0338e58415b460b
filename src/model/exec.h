// Exec: the few parallel primitives that the forward pages are written in.
//
// Contract: owner-thread only; splits rows, heads and tokens over the pool, never a sum (promise
// 2). No allocation after construction. float_act selects the reference mode: quantised weights
// times float activations. The idle hook runs between primitives on the owner thread (the runtime
// polls its reads there).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "memory/arena.h"
#include "model/parts.h"
#include "model/weights.h"

namespace sluice {

// Room for activation rows quantised to int8, in the formats a model's weights ask for.
struct ActBuffer {
  // A bit of `formats` beside those of ActFormat: each token has two rows, the second one holding
  // the rounding error of the first, quantised with its own scales.
  static constexpr uint32_t kTwoPlanes = 1u << 7;
  struct Part {
    int8_t* q = nullptr;
    float* scale = nullptr;
    int16_t* sums = nullptr;
  };
  uint32_t rows = 0, cols = 0;  // capacity in elements: rows * cols
  Part x32, x256;

  // formats: bit (1 << ActFormat) for each format needed. Sizes in bytes, 64-byte aligned pieces.
  static uint64_t Bytes(uint32_t rows, uint32_t cols, uint32_t formats);
  static ActBuffer Place(Arena* arena, uint32_t rows, uint32_t cols, uint32_t formats);
  const Part& part(ActFormat format) const { return format == ActFormat::kQ8x32 ? x32 : x256; }
};

// A set of activation formats: one bit each.
constexpr uint32_t FormatBit(ActFormat format) { return 1u << static_cast<uint32_t>(format); }

// Rows that products multiply: floats, the same rows as int8 in a buffer, or both.
struct Operand {
  const float* f32 = nullptr;
  uint64_t stride = 0;  // floats from one row to the next
  uint32_t rows = 0, cols = 0;
  const ActBuffer* act = nullptr;
  uint64_t first = 0;    // the buffer's row of row 0
  uint32_t formats = 0;  // what is there; kF32: f32
};

struct Projection {
  const Matrix* w = nullptr;
  float* out = nullptr;
  uint64_t out_stride = 0;  // floats from one token's row to the next
  const float* bias = nullptr;
};

// One job of a parallel region of matrix products.
struct MatmulJob {
  MatmulArgs args;
  uint32_t rows = 0;  // weight rows
  // Not null: the product goes nowhere, but is added here: add_to[t * args.out_stride + r] +=
  // add_scale * product, while the part is in the cache.
  float* add_to = nullptr;
  float add_scale = 1;
};

// Two products of one shape, the halves of a gated unit.
struct GluJob {
  MatmulArgs gate, up;  // their `out` is not used
  uint32_t row = 0;     // where its tokens' rows begin in GluRows
};

// The rows that a region of gated units makes, packed: those of job 0, of job 1, ...
struct GluRows {
  GluArgs unit;                        // which one, and its constants
  uint32_t n = 0;                      // weight rows of each matrix: elements of a row
  ActFormat format = ActFormat::kF32;  // what the product after it multiplies
  float* gate = nullptr;           // [rows][n]: the result where that is floats; scratch otherwise
  float* up = nullptr;             // [rows][n] scratch
  const ActBuffer* act = nullptr;  // [rows][n]: the result where that is int8
};

class Exec {
 public:
  Exec(const Ops* ops, ThreadPool* pool, bool float_act, bool two_planes)
      : ops_(ops), pool_(pool), float_act_(float_act), planes_(two_planes ? 2 : 1) {}

  const Ops& ops() const { return *ops_; }
  bool float_act() const { return float_act_; }
  int threads() const { return pool_->active_threads(); }
  // Rows of an ActBuffer that one token takes.
  uint32_t planes() const { return planes_; }
  ActFormat FormatFor(WeightType type) const {
    return float_act_ ? ActFormat::kF32 : ActFormatOf(type);
  }

  // Where one token's row of `cols` goes in a buffer, from column first_col (a whole block) on.
  ActOut Out(ActFormat format, const ActBuffer& buffer, uint64_t row, uint32_t cols,
             uint32_t first_col = 0) const;
  // An operand as one of its formats.
  ActRows View(ActFormat format, const Operand& x) const;
  // W x + bias; the caller says where to.
  MatmulArgs ArgsOf(const Matrix& w, const Operand& x, const float* bias) const;

  // One row of a norm in the formats of a set: int8 into the buffer, floats to args.y. args.y must
  // have room for a row in any case.
  void NormRow(NormArgs args, const ActBuffer& buffer, uint64_t row, uint32_t formats) const;
  void QuantizeRow(const float* x, uint32_t n, const ActBuffer& buffer, uint64_t row,
                   uint32_t formats) const;
  // Rows [rows][cols] of x and, from the buffer's row 0, the same as int8 in `formats`.
  Operand Quantize(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
                   uint32_t cols, uint32_t formats);

  // y = W x (+ bias) for every projection, all sharing the input; one barrier.
  void Project(const Operand& x, std::span<const Projection> jobs);
  // The same from floats, quantised into the buffer first.
  void Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
               std::span<const Projection> jobs);
  void Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
               std::initializer_list<Projection> jobs) {
    Project(buffer, x, x_stride, rows, std::span<const Projection>(jobs.begin(), jobs.size()));
  }
  // A region of unrelated products; at most kJobsMax.
  static constexpr size_t kJobsMax = PartList::kJobsMax;
  void Run(std::span<const MatmulJob> jobs);

  // Gated units, quantised as they are made. Many tokens: one region, each part makes both halves
  // of a few rows and uses them up. Few: the products first, in ranges as long as they can be.
  void RunGlu(std::span<const GluJob> jobs, const GluRows& rows);

  // fn(begin, end) over disjoint ranges of [0, n); inline when n < grain * 2.
  void For(uint32_t n, uint32_t grain, FunctionRef<void(uint32_t begin, uint32_t end)> fn);

  void SetIdleHook(void (*hook)(void*), void* argument) {
    idle_hook_ = hook;
    idle_argument_ = argument;
  }
  void Idle() {
    if (idle_hook_ != nullptr) idle_hook_(idle_argument_);
  }

 private:
  static constexpr uint32_t kTokensAtOnce = 64;  // as the kernels take them
  uint32_t TokensOf(const ActRows& x) const;
  MatmulArgs Slice(const MatmulArgs& args, uint32_t first, uint32_t tokens, uint32_t row) const;
  void RunRegion(std::span<const PartJob> jobs, uint32_t grain, FunctionRef<void(const Part&)> fn);
  // One part of a region: weight rows [begin, end) of a job.
  void RunPart(const MatmulArgs& args, uint32_t begin, uint32_t end) const;
  void SumPlanes(const MatmulArgs& args, uint32_t begin, uint32_t end) const;
  void AddPart(const MatmulJob& job, uint32_t begin, uint32_t end) const;
  void GluPart(const GluJob& job, const GluRows& rows, const Part& part, uint32_t grain) const;
  void GluPieces(std::span<const GluJob> jobs, const GluRows& rows);

  const Ops* ops_;
  ThreadPool* pool_;
  bool float_act_;
  uint32_t planes_;
  void (*idle_hook_)(void*) = nullptr;
  void* idle_argument_ = nullptr;
};

}  // namespace sluice
