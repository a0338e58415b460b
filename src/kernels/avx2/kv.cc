// K and V rows to their stored formats: the bytes of scalar/kv.cc.
#include "kernels/avx2/leaves.h"
#include "kernels/avx2/simd.h"
#include "kernels/kv_row.h"
#include "kernels/scalar/leaves.h"

namespace sluice::avx2 {
namespace {

struct Block {
  __m256 v[4];
};

inline Block LoadBlock(const float* x) {
  return {{_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
           _mm256_loadu_ps(x + 24)}};
}

inline float LargestLane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline float Largest(const Block& b) {
  return LargestLane(_mm256_max_ps(_mm256_max_ps(b.v[0], b.v[1]), _mm256_max_ps(b.v[2], b.v[3])));
}

inline Block Negated(const Block& b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {{_mm256_xor_ps(b.v[0], sign), _mm256_xor_ps(b.v[1], sign), _mm256_xor_ps(b.v[2], sign),
           _mm256_xor_ps(b.v[3], sign)}};
}

// x - x is zero for finite numbers only.
inline bool IsFinite(const Block& b) {
  __m256 bad = _mm256_setzero_ps();
  for (const __m256 v : b.v) {
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(_mm256_sub_ps(v, v), _mm256_setzero_ps(), _CMP_NEQ_UQ));
  }
  return _mm256_movemask_ps(bad) == 0;
}

inline uint16_t ToHalf(float v) {
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(v), _MM_FROUND_TO_NEAREST_INT), 0));
}
inline float FromHalf(uint16_t v) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(v))); }

// (v - min) / d rounded and clamped, as 32 bytes in order.
inline __m256i Quants(const Block& b, float min, float d, float low, float high) {
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 ratio =
        _mm256_div_ps(_mm256_sub_ps(b.v[i], _mm256_set1_ps(min)), _mm256_set1_ps(d));
    const __m256 rounded = _mm256_round_ps(ratio, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    q[i] = _mm256_cvtps_epi32(
        _mm256_min_ps(_mm256_max_ps(rounded, _mm256_set1_ps(low)), _mm256_set1_ps(high)));
  }
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

inline bool Usable(float d) { return d > 0 && d < __builtin_inff(); }

void StoreQ8(const Block& b, uint8_t* out) {
  const float max = Largest(b), least = Largest(Negated(b));
  const uint16_t scale = ToHalf((max > least ? max : least) / 127.0f + 0.0f);
  const float d = FromHalf(scale);
  __m256i q = _mm256_setzero_si256();
  if (Usable(d)) q = Quants(b, 0.0f, d, -127.0f, 127.0f);
  __builtin_memcpy(out, &scale, 2);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2), q);
}

void StoreQ4(const Block& b, uint8_t* out) {
  const float max = Largest(b), least = -Largest(Negated(b));
  const uint16_t scale = ToHalf((max - least) / 15.0f + 0.0f), low = ToHalf(least + 0.0f);
  const float d = FromHalf(scale), min = FromHalf(low);
  __m128i q = _mm_setzero_si128();
  if (Usable(d) && min - min == 0) {
    const __m256i v = Quants(b, min, d, 0.0f, 15.0f);
    q = _mm_or_si128(LowLane(v), _mm_slli_epi16(HighLane(v), 4));
  }
  __builtin_memcpy(out, &scale, 2);
  __builtin_memcpy(out + 2, &low, 2);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4), q);
}

void StoreHalves(bool is_value, const float* x, uint32_t n, uint8_t* row) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * uint64_t{i}), half);
  }
  if (i < n) scalar::KvStore(KvFormat::kF16, is_value, x + i, n - i, row + 2 * uint64_t{i});
}

}  // namespace

void KvStore(KvFormat format, bool is_value, const float* x, uint32_t n, uint8_t* row) {
  if (format == KvFormat::kF16) return StoreHalves(is_value, x, n, row);
  if (format == KvFormat::kF32) return scalar::KvStore(format, is_value, x, n, row);
  const bool q4 = format == KvFormat::kK8V4 && is_value;
  const uint64_t bytes = q4 ? sizeof(KvQ4Block) : sizeof(KvQ8Block);
  for (uint32_t i = 0; i < n; i += kKvBlockElems, row += bytes) {
    const uint32_t count = n - i < kKvBlockElems ? n - i : kKvBlockElems;
    // A part of a block and one that is not finite are rare.
    if (count < kKvBlockElems || !IsFinite(LoadBlock(x + i))) {
      scalar::KvStore(format, is_value, x + i, count, row);
    } else if (q4) {
      StoreQ4(LoadBlock(x + i), row);
    } else {
      StoreQ8(LoadBlock(x + i), row);
    }
  }
}

}  // namespace sluice::avx2
