// AVX-512, VNNI and AMX intrinsics in software: SIMDe's portable ones under the usual names, and
// the tile emulator. Stands in for <immintrin.h> in the kernel units that tests build a second
// time.
//
// Contract: test code only; include nothing that needs the real intrinsics afterwards.
#pragma once

#include <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wpsabi"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop

namespace sluice::testing {
namespace {

struct Halves {
  __m256i half[2];
};
inline Halves HalvesOf(simde__m512i v) { return __builtin_bit_cast(Halves, v); }

struct FloatHalves {
  __m256 half[2];
};

// f of the two halves of each operand: what SIMDe 0.7.4 does not have, or rounds twice.
template <class F, class... V>
inline simde__m512 Floats(F f, V... v) {
  const FloatHalves out = {{f(__builtin_bit_cast(FloatHalves, v).half[0]...),
                            f(__builtin_bit_cast(FloatHalves, v).half[1]...)}};
  return __builtin_bit_cast(simde__m512, out);
}

inline simde__m512 CvtEpi32Ps(simde__m512i v) {
  const Halves h = HalvesOf(v);
  const FloatHalves out = {{_mm256_cvtepi32_ps(h.half[0]), _mm256_cvtepi32_ps(h.half[1])}};
  return __builtin_bit_cast(simde__m512, out);
}
inline simde__m512i CvtPsEpi32(simde__m512 v) {
  const FloatHalves h = __builtin_bit_cast(FloatHalves, v);
  const Halves out = {{_mm256_cvtps_epi32(h.half[0]), _mm256_cvtps_epi32(h.half[1])}};
  return __builtin_bit_cast(simde__m512i, out);
}
inline simde__m512 CvtPhPs(__m256i v) {
  const FloatHalves out = {{_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))}};
  return __builtin_bit_cast(simde__m512, out);
}
inline simde__m512i CvtEpu16Epi32(__m256i v) {
  const Halves out = {{_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                       _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1))}};
  return __builtin_bit_cast(simde__m512i, out);
}
inline simde__m512i CvtEpi8Epi32(__m128i v) {
  const Halves out = {{_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))}};
  return __builtin_bit_cast(simde__m512i, out);
}
inline simde__m512i CvtEpu8Epi32(__m128i v) {
  const Halves out = {{_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))}};
  return __builtin_bit_cast(simde__m512i, out);
}
// The low byte of each.
inline __m128i CvtEpi32Epi8(simde__m512i v) {
  alignas(64) int32_t in[16];
  alignas(16) int8_t out[16];
  __builtin_memcpy(in, &v, sizeof(in));
  for (int i = 0; i < 16; ++i) out[i] = static_cast<int8_t>(in[i] & 0xff);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(out));
}

// The dot products as AVX2 functions of their own: SIMDe's, inlined at hundreds of places, take
// minutes to compile. Four unsigned times signed bytes: the even pair and the odd pair, 16 bits
// wide.
[[gnu::noinline, maybe_unused]] __m256i DotBytes256(__m256i acc, __m256i u, __m256i s) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0xff)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}

inline __m256i DotWords256(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

[[gnu::noinline, maybe_unused]] simde__m512i DotBytes512(simde__m512i acc, simde__m512i u,
                                                         simde__m512i s) {
  Halves out = HalvesOf(acc);
  for (int i = 0; i < 2; ++i) {
    out.half[i] = DotBytes256(out.half[i], HalvesOf(u).half[i], HalvesOf(s).half[i]);
  }
  return __builtin_bit_cast(simde__m512i, out);
}

[[gnu::noinline, maybe_unused]] simde__m512i DotWords512(simde__m512i acc, simde__m512i a,
                                                         simde__m512i b) {
  Halves out = HalvesOf(acc);
  for (int i = 0; i < 2; ++i) {
    out.half[i] = DotWords256(out.half[i], HalvesOf(a).half[i], HalvesOf(b).half[i]);
  }
  return __builtin_bit_cast(simde__m512i, out);
}

}  // namespace
}  // namespace sluice::testing

#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi32_epi8
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#undef _mm512_fmaddsub_ps
#undef _mm512_min_ps
#undef _mm512_max_ps
#undef _mm512_roundscale_ps
#undef _mm512_permute_ps
#undef _mm256_dpbusd_epi32
#undef _mm256_dpwssd_epi32
#define _mm512_cvtepi32_ps(v) ::sluice::testing::CvtEpi32Ps(v)
#define _mm512_cvtps_epi32(v) ::sluice::testing::CvtPsEpi32(v)
#define _mm512_cvtph_ps(v) ::sluice::testing::CvtPhPs(v)
#define _mm512_cvtepu16_epi32(v) ::sluice::testing::CvtEpu16Epi32(v)
#define _mm512_cvtepi8_epi32(v) ::sluice::testing::CvtEpi8Epi32(v)
#define _mm512_cvtepu8_epi32(v) ::sluice::testing::CvtEpu8Epi32(v)
#define _mm512_cvtepi32_epi8(v) ::sluice::testing::CvtEpi32Epi8(v)
#define _mm512_dpbusd_epi32(acc, u, s) ::sluice::testing::DotBytes512(acc, u, s)
#define _mm512_dpwssd_epi32(acc, a, b) ::sluice::testing::DotWords512(acc, a, b)
#define _mm512_fmadd_ps(a, b, c)                                                                   \
  ::sluice::testing::Floats([](__m256 x, __m256 y, __m256 z) { return _mm256_fmadd_ps(x, y, z); }, \
                            a, b, c)
#define _mm512_fnmadd_ps(a, b, c) \
  ::sluice::testing::Floats(      \
      [](__m256 x, __m256 y, __m256 z) { return _mm256_fnmadd_ps(x, y, z); }, a, b, c)
#define _mm512_fmaddsub_ps(a, b, c) \
  ::sluice::testing::Floats(        \
      [](__m256 x, __m256 y, __m256 z) { return _mm256_fmaddsub_ps(x, y, z); }, a, b, c)
#define _mm512_min_ps(a, b) \
  ::sluice::testing::Floats([](__m256 x, __m256 y) { return _mm256_min_ps(x, y); }, a, b)
#define _mm512_max_ps(a, b) \
  ::sluice::testing::Floats([](__m256 x, __m256 y) { return _mm256_max_ps(x, y); }, a, b)
#define _mm512_roundscale_ps(a, how) \
  ::sluice::testing::Floats([](__m256 x) { return _mm256_round_ps(x, how); }, a)
#define _mm512_permute_ps(a, how) \
  ::sluice::testing::Floats([](__m256 x) { return _mm256_permute_ps(x, how); }, a)
#define _mm256_dpbusd_epi32(acc, u, s) ::sluice::testing::DotBytes256(acc, u, s)
#define _mm256_dpwssd_epi32(acc, a, b) ::sluice::testing::DotWords256(acc, a, b)

#include "tests/kernels/amx_emulator.h"
