// The kernel table: every hot loop of the engine as a plain leaf function.
//
// Contract: leaves take plain arguments and a row (or head, or token) range, allocate nothing,
// touch no globals and no threads. One table per instruction set, each in its own translation unit
// with its own flags; GetOps() returns the best one this CPU runs (or a lower one forced by name).
// Promise 2: the value of out[t][r] depends only on weights row r and activation row t, never on
// the number of rows, tokens, the range or the thread: each (t, r) pair has one fixed accumulation
// order per instruction set. Scalar is the reference; the others agree with it to 1e-5 relative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "quant/types.h"

namespace sluice {

// Activation formats. Quantised weights multiply int8 activations; float weights multiply floats.
enum class ActFormat : uint8_t {
  kF32,
  kQ8x32,   // int8, one float scale per 32, and the sum of the 32 quants (legacy, IQ4_NL, MXFP4)
  kQ8x256,  // int8, one float scale per 256, and the sum of each 16 quants (K-quants, IQ4_XS, TQ)
};

// m activation rows of n elements. Rows are apart by the strides (in elements of that array).
struct ActRows {
  ActFormat format = ActFormat::kF32;
  uint32_t rows = 0, cols = 0;
  const float* f32 = nullptr;  // kF32
  uint64_t f32_stride = 0;
  const int8_t* q = nullptr;      // kQ8*: [rows][cols]
  const float* scale = nullptr;   // [rows][cols / 32 or cols / 256]
  const int16_t* sums = nullptr;  // [rows][cols / 32 or cols / 16]
  uint64_t q_stride = 0, scale_stride = 0, sums_stride = 0;
};

// Where one row of activations goes as int8. Two planes: the second holds what the first one's
// rounding took away, x - scale * q, quantised with scales of its own; it lies behind the first.
// The places are those of the row's first element; a run that begins and ends at whole blocks may
// be written alone.
struct ActOut {
  ActFormat format = ActFormat::kF32;  // kF32: nowhere
  uint32_t planes = 1;
  int8_t* q = nullptr;
  float* scale = nullptr;
  int16_t* sums = nullptr;
  uint64_t q_plane = 0, scale_plane = 0, sums_plane = 0;  // from the first plane to the second
};

// The int8 path is the same bits on every instruction set: per block an exact integer sum, then
// out = out + dx * (d * isum [+ m * imin]) in block order, multiply and add apart
// (scalar/int_block.h). Float dot products keep one order per set. Ranges of a few hundred rows are
// best: a range is walked as eight parallel streams. Which format the int8 path of a weight type
// takes (kF32 for float types).
ActFormat ActFormatOf(WeightType type);
// Scale and sum counts per row of n elements.
uint64_t ActScales(ActFormat format, uint64_t n);
uint64_t ActSums(ActFormat format, uint64_t n);

// out[t * out_stride + r] = sum_c W[r][c] * x[t][c] (+ bias[r]) for all t and row_begin <= r <
// row_end.
struct MatmulArgs {
  const uint8_t* weights = nullptr;  // row 0; any byte alignment (streamed in file layout)
  uint64_t row_bytes = 0;
  WeightType type = WeightType::kF32;
  ActRows x;  // x.format is ActFormatOf(type), or kF32 for float activations
  const float* bias = nullptr;
  float* out = nullptr;
  uint64_t out_stride = 0;
};

enum class KvFormat : uint8_t { kF32, kF16, kQ8, kK8V4 };

// Attention of a token over one KV head: `group` query heads share the K/V rows of positions
// [first, last]. With rows > 1, of as many tokens of one timeline, one after another: token r sees
// [0, last + r], and first must be 0; the bits are those of each alone. A page holds kKvPageTokens
// rows; K row p lies at pages[p / 64] + k_offset + (p % 64) * k_row. Softmax is online, page by
// page in order: m, l and the accumulator are rescaled once per page.
struct AttentionArgs {
  const float* q = nullptr;  // [rows][group][dim_k], roped, not scaled
  uint32_t rows = 1;
  uint64_t q_stride = 0, out_stride = 0;  // floats from one token's rows to the next one's
  uint32_t group = 0, dim_k = 0, dim_v = 0;
  KvFormat format = KvFormat::kF16;
  const uint8_t* const* pages = nullptr;
  uint64_t k_offset = 0, v_offset = 0, k_row = 0, v_row = 0;  // bytes
  uint32_t first = 0, last = 0;
  float scale = 1;
  const float* sinks = nullptr;  // [group] or null: one more logit per head without a value
  float* out = nullptr;          // [rows][group][dim_v]
};

// Gated delta rule, one token, one value head (docs/architectures.md): S [kd][vd] row-major, in
// place.
struct DeltaStepArgs {
  float* state = nullptr;
  const float* q = nullptr;  // [kd], normalised and scaled
  const float* k = nullptr;  // [kd], normalised
  const float* v = nullptr;  // [vd]
  float beta = 0, decay = 1;
  uint32_t kd = 0, vd = 0;
  float* out = nullptr;  // [vd]
};

// A row made and quantised in one pass. The bits are those of the plain leaves one after another.
// Where y is null the floats are kept nowhere.
//   [x += add, or x += rms_norm(add, add_norm)], then y and out = rms_norm(x, w)
struct NormArgs {
  float* x = nullptr;  // written only where something is added
  const float* add = nullptr;
  const float* add_norm = nullptr;
  const float* w = nullptr;  // null: no weights
  float eps = 0;
  uint32_t n = 0;
  float* y = nullptr;  // without y and out the norm is not computed
  ActOut out = {};
};

enum class Glu : uint8_t { kSilu, kGeluTanh, kSwigluClamped };

// y and out = activation(gate) * up; y may be gate or up itself.
struct GluArgs {
  Glu glu = Glu::kSilu;
  const float *gate = nullptr, *up = nullptr;
  uint32_t n = 0;
  float limit = 0, alpha = 0;  // kSwigluClamped
  float* y = nullptr;
  ActOut out = {};
};

struct Ops {
  const char* isa = "scalar";

  void (*matmul)(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) = nullptr;
  // scale = maxabs / 127, q = nearest even; NaN or Inf in a block: scale NaN, zeros. All sets
  // alike.
  void (*quantize)(ActFormat format, const float* x, uint32_t n, int8_t* q, float* scale,
                   int16_t* sums) = nullptr;

  // The same into every plane of `out`.
  void (*quantize_row)(const float* x, uint32_t n, const ActOut& out) = nullptr;
  void (*norm_row)(const NormArgs& args) = nullptr;
  void (*glu_row)(const GluArgs& args) = nullptr;

  // y = x / sqrt(mean(x^2) + eps) * w; w may be null. x and y may alias.
  void (*rms_norm)(const float* x, const float* w, float eps, uint32_t n, float* y) = nullptr;
  // Rotates n_heads vectors of head_dim at x in place: cos/sin [dims / 2] hold this position's
  // values.
  void (*rope)(float* x, uint32_t n_heads, uint32_t head_dim, uint32_t dims, bool adjacent,
               const float* cos, const float* sin) = nullptr;
  // Element-wise: y may be gate or up itself.
  void (*silu_mul)(const float* gate, const float* up, uint32_t n,
                   float* y) = nullptr;  // silu(gate) * up
  void (*gelu_tanh_mul)(const float* gate, const float* up, uint32_t n, float* y) = nullptr;
  // gpt-oss: min(gate, limit) * sigmoid(alpha * gate) * (clamp(up, -limit, limit) + 1)
  void (*swiglu_clamped_mul)(const float* gate, const float* up, float limit, float alpha,
                             uint32_t n, float* y) = nullptr;
  void (*add)(const float* x, float scale, uint32_t n, float* y) = nullptr;  // y += scale * x
  void (*mul_sigmoid)(const float* gate, uint32_t n, float* y) = nullptr;    // y *= sigmoid(gate)
  void (*softmax)(float* x, uint32_t n) = nullptr;                           // in place
  void (*kv_store)(KvFormat format, bool is_value, const float* x, uint32_t n,
                   uint8_t* row) = nullptr;
  void (*attention)(const AttentionArgs& args) = nullptr;
  void (*delta_step)(const DeltaStepArgs& args) = nullptr;
  // Causal depthwise conv + silu over channels [begin, end): state [channels][kernel - 1] oldest
  // first is advanced with x [channels]; y[c] = silu(sum_i w[c][i] * window[c][i]).
  void (*conv_step)(const float* w, uint32_t kernel, const float* x, float* state, uint32_t begin,
                    uint32_t end, float* y) = nullptr;
};

// Bytes of one K or V row of n elements in a KV format.
uint64_t KvRowBytes(KvFormat format, bool is_value, uint32_t n);

// Instruction sets this build holds and this CPU runs, best first; "scalar" is always last.
std::vector<std::string_view> AvailableIsas();
// nullptr for a name that is not available. Empty: the best.
const Ops* GetOps(std::string_view isa = {});

}  // namespace sluice
