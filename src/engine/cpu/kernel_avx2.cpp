#include <immintrin.h>

#include "engine/cpu/kernels.hpp"

// AVX2, FMA and F16C: eight lanes, sixteen registers, a 6 x 16 micro-kernel.
namespace attngraph::cpu::avx2 {

typedef __m256 F;
typedef int32_t I __attribute__((vector_size(32)));
typedef uint32_t U __attribute__((vector_size(32)));
inline constexpr int64_t kLanes = 8, kMr = 6, kNv = 2;

inline F set1(float x) { return _mm256_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
inline F interleave_low(F a, F b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
inline F interleave_high(F a, F b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}

inline void wide_product(U a, uint32_t b, U& high, U& low) {
  const __m256i factor = _mm256_set1_epi32(static_cast<int>(b));
  const __m256i even = _mm256_mul_epu32((__m256i)a, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), factor);
  low = (U)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = (U)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

inline F widen_f16(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline F widen_bf16(const void* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline void narrow_f16(void* p, F v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void narrow_bf16(void* p, F v) {
  const U bits = (U)v;
  const U rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  const U half = v == v ? rounded : (bits >> 16 | 0x40U);  // a quiet NaN
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)half, (__m256i)half), 0x08);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

inline void keep_in_register(F& v) { asm volatile("" : "+x"(v)); }

#include "engine/cpu/kernel_body.inc"

const Kernels kKernels = make_kernels(CpuIsa::kAvx2);

}  // namespace attngraph::cpu::avx2
