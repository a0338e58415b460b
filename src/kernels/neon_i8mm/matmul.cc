// The matrix extension: a pair of rows times a pair of tokens, eight columns, in one instruction.
#include "kernels/neon/leaves.h"
#include "kernels/neon/matmul_int.h"

namespace sluice::neon_i8mm {
namespace {

struct Isa {
  static constexpr uint32_t kFewTokens = 1;
  static constexpr bool kPanel = true, kPairs = true;
  static int32x4_t Dot(int32x4_t acc, int8x16_t a, int8x16_t b) { return vdotq_s32(acc, a, b); }

  static int8x16_t Low(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
  }
  static int8x16_t High(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
  }
  // Eight columns of rows 0 and 1, of rows 2 and 3, then the next eight.
  static void Interleave(const int8x16_t* w, int8_t* out) {
    vst1q_s8(out, Low(w[0], w[1]));
    vst1q_s8(out + 16, Low(w[2], w[3]));
    vst1q_s8(out + 32, High(w[0], w[1]));
    vst1q_s8(out + 48, High(w[2], w[3]));
  }
  // x[2 p]: eight columns of the tokens of pair p, x[2 p + 1]: the next eight.
  template <int kTokens>
  static void LoadTokens(const int8_t* const* q, int at, int8x16_t* x) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; t += 2) {
      const int8x16_t a = vld1q_s8(q[t] + at), b = vld1q_s8(q[t + 1] + at);
      x[t] = Low(a, b);
      x[t + 1] = High(a, b);
    }
  }
  // acc[2 p]: rows 0 and 1 with the tokens of pair p (r0 t0, r0 t1, r1 t0, r1 t1); acc[2 p + 1]:
  // rows 2 and 3.
  template <int kTokens>
  static void Step(const int8_t* w, const int8x16_t* x, int32x4_t* acc) {
#pragma GCC unroll 2
    for (int columns = 0; columns < 2; ++columns) {
#pragma GCC unroll 2
      for (int rows = 0; rows < 2; ++rows) {
        const int8x16_t pair = vld1q_s8(w + 32 * columns + 16 * rows);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; t += 2) {
          acc[t + rows] = vmmlaq_s32(acc[t + rows], pair, x[t + columns]);
        }
      }
    }
  }
  static int32x4_t Scale(int32x4_t s, int i) { return i % 2 ? vzip2q_s32(s, s) : vzip1q_s32(s, s); }
  template <int kTokens>
  static void ByToken(int32x4_t* v) {
    for (int t = 0; t < kTokens; t += 2) {
      const int32x4_t low = v[t], high = v[t + 1];
      v[t] = vuzp1q_s32(low, high);
      v[t + 1] = vuzp2q_s32(low, high);
    }
  }
};

}  // namespace

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kF32) return neon::MatmulFloat(args, row_begin, row_end);
  MatmulInt<Isa>(args, row_begin, row_end);
}

}  // namespace sluice::neon_i8mm
