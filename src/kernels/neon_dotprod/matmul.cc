// The dot product extension: four products per lane in one instruction.
#include "kernels/neon/leaves.h"
#include "kernels/neon/matmul_int.h"

namespace sluice::neon_dotprod {
namespace {

struct Isa {
  static constexpr uint32_t kFewTokens = 2;
  static constexpr bool kPanel = true, kPairs = false;
  static int32x4_t Dot(int32x4_t acc, int8x16_t a, int8x16_t b) { return vdotq_s32(acc, a, b); }

  // Four quants of row 0, of row 1, ...: a lane belongs to a row.
  static void Interleave(const int8x16_t* w, int8_t* out) {
    const int32x4_t r0 = vreinterpretq_s32_s8(w[0]), r1 = vreinterpretq_s32_s8(w[1]);
    const int32x4_t r2 = vreinterpretq_s32_s8(w[2]), r3 = vreinterpretq_s32_s8(w[3]);
    const int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(r0, r1));
    const int64x2_t b = vreinterpretq_s64_s32(vtrn2q_s32(r0, r1));
    const int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(r2, r3));
    const int64x2_t d = vreinterpretq_s64_s32(vtrn2q_s32(r2, r3));
    vst1q_s8(out, vreinterpretq_s8_s64(vtrn1q_s64(a, c)));
    vst1q_s8(out + 16, vreinterpretq_s8_s64(vtrn1q_s64(b, d)));
    vst1q_s8(out + 32, vreinterpretq_s8_s64(vtrn2q_s64(a, c)));
    vst1q_s8(out + 48, vreinterpretq_s8_s64(vtrn2q_s64(b, d)));
  }
  template <int kTokens>
  static void LoadTokens(const int8_t* const* q, int at, int8x16_t* x) {
    for (int t = 0; t < kTokens; ++t) x[t] = vld1q_s8(q[t] + at);
  }
  template <int kTokens>
  static void Step(const int8_t* w, const int8x16_t* x, int32x4_t* acc) {
    Unrolled<4>([&](auto i) {
      const int8x16_t rows = vld1q_s8(w + 16 * i.value);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) acc[t] = vdotq_laneq_s32(acc[t], rows, x[t], i.value);
    });
  }
  static int32x4_t Scale(int32x4_t s, int) { return s; }
  template <int kTokens>
  static void ByToken(int32x4_t*) {}
};

}  // namespace

void Matmul(const MatmulArgs& args, uint32_t row_begin, uint32_t row_end) {
  if (args.x.format == ActFormat::kF32) return neon::MatmulFloat(args, row_begin, row_end);
  MatmulInt<Isa>(args, row_begin, row_end);
}

}  // namespace sluice::neon_dotprod
