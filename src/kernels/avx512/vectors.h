// Vectors of sixteen rows, one per 32-bit lane: see avxvnni/vectors.h.
//
// Contract: as there. The 32 registers hold the sums of eight tokens twice (of the group, of the
// block), and DotBytes takes its activations straight from memory.
#pragma once

#include "kernels/avxvnni/vectors.h"

namespace sluice {
namespace {

struct Zmm {
  using Int = __m512i;
  using Float = __m512;
  static constexpr uint32_t kLanes = 16;
  static constexpr int kTokens = 8;

  static Int Zero() { return _mm512_setzero_si512(); }
  static Int Load(const int32_t* p) { return _mm512_loadu_si512(p); }
  static Int Broadcast(const void* p) { return _mm512_set1_epi32(LoadI32(p)); }
  static Int Same(int32_t v) { return _mm512_set1_epi32(v); }
  static Int Add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int Sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int Mul(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Int DotBytes(Int acc, Int u, Int s) { return _mm512_dpbusd_epi32(acc, u, s); }
  static Int DotWords(Int acc, Int a, Int b) { return _mm512_dpwssd_epi32(acc, a, b); }

  static Float FloatZero() { return _mm512_setzero_ps(); }
  static Float LoadFloats(const float* p) { return _mm512_loadu_ps(p); }
  static void StoreFloats(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float SameFloat(float v) { return _mm512_set1_ps(v); }
  static Float ToFloat(Int v) { return _mm512_cvtepi32_ps(v); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
};

}  // namespace
}  // namespace sluice
