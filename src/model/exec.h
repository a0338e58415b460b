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
};

class Exec {
 public:
  Exec(const Ops* ops, ThreadPool* pool, bool float_act, bool two_planes)
      : ops_(ops), pool_(pool), float_act_(float_act), planes_(two_planes ? 2 : 1) {}

  const Ops& ops() const { return *ops_; }
  bool float_act() const { return float_act_; }
  // Rows of an ActBuffer that one token takes.
  uint32_t planes() const { return planes_; }
  // Quantises one token into buffer row(s) of `row`; all planes.
  void QuantizeRow(ActFormat format, const float* x, uint32_t n, const ActBuffer& buffer,
                   uint64_t row) const;
  ActFormat FormatFor(WeightType type) const {
    return float_act_ ? ActFormat::kF32 : ActFormatOf(type);
  }

  // Quantises rows [rows][cols] of x (row stride x_stride) into the buffer from buffer row 0.
  ActRows Prepare(ActFormat format, const float* x, uint64_t x_stride, uint32_t rows, uint32_t cols,
                  const ActBuffer& buffer);

  // y = W x (+ bias) for every projection, all sharing the input x [rows][cols]; one barrier.
  void Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
               std::span<const Projection> jobs);
  void Project(const ActBuffer& buffer, const float* x, uint64_t x_stride, uint32_t rows,
               std::initializer_list<Projection> jobs) {
    Project(buffer, x, x_stride, rows, std::span<const Projection>(jobs.begin(), jobs.size()));
  }
  // A region of unrelated products; at most kJobsMax.
  static constexpr size_t kJobsMax = PartList::kJobsMax;
  void Run(std::span<const MatmulJob> jobs);

  // One part of a region: weight rows [begin, end) of a job, summing the planes of each token.
  void RunPart(const MatmulJob& job, uint32_t begin, uint32_t end) const;

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
  const Ops* ops_;
  ThreadPool* pool_;
  bool float_act_;
  uint32_t planes_;
  void (*idle_hook_)(void*) = nullptr;
  void* idle_argument_ = nullptr;
};

}  // namespace sluice
