#include <immintrin.h>

#include "engine/cpu/kernels.hpp"

// AVX-512 with BF16: the same, and products of bfloat16 pairs at twice the rate.
namespace attngraph::cpu::avx512bf16 {

#include "engine/cpu/avx512_lanes.inc"
#include "engine/cpu/kernel_body.inc"

struct PairDot {
  static F add_to(F c, F a, F b) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
};

/// Sixteen words of a row of bfloat16, two elements each; 0 at and beyond `dim`, which is not read,
/// and in a row that has no address.
inline F load_pairs(const std::byte* row, int64_t word, int64_t dim, int64_t stride) {
  if (row == nullptr) return F{};
  const std::byte* p = row + 2 * word * stride * 2;
  if (stride == 1 && 2 * (word + kLanes) <= dim) return _mm512_loadu_ps(p);
  uint16_t some[2 * kLanes] = {};
  for (int64_t i = 0; i < least(2 * kLanes, dim - 2 * word); ++i, p += stride * 2)
    __builtin_memcpy(&some[i], p, sizeof some[i]);
  return _mm512_loadu_ps(some);
}

/// Sixteen elements of a row of bfloat16 in the low halves of words; 0 at and beyond `dim`.
inline __m512i load_halves(const std::byte* row, int64_t first, int64_t dim, int64_t stride) {
  if (row == nullptr) return _mm512_setzero_si512();
  const std::byte* p = row + first * stride * 2;
  if (stride == 1 && first + kLanes <= dim)
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  uint16_t some[kLanes] = {};
  for (int64_t i = 0; i < least(kLanes, dim - first); ++i, p += stride * 2)
    __builtin_memcpy(&some[i], p, sizeof some[i]);
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)some));
}

void load_pair_rows(const Rows& rows, Packed out) {
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t w = 0; w < (rows.dim + 1) / 2; w += kLanes)
      store(out.words + r * out.stride + w, load_pairs(rows.row[r], w, rows.dim, rows.dim_stride));
}

void pack_pair_rows(const Rows& rows, Packed out) {
  for (int64_t r = 0; r < rows.count; r += 2)
    for (int64_t d = 0; d < whole(rows.dim, kPanel); d += kLanes) {
      const __m512i low = load_halves(rows.row[r], d, rows.dim, rows.dim_stride);
      const __m512i high = r + 1 < rows.count ? load_halves(rows.row[r + 1], d, rows.dim, rows.dim_stride)
                                              : _mm512_setzero_si512();
      store(out.words + d / kPanel * out.stride + r / 2 * kPanel + d % kPanel,
            (F)_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

void pack_pair_cols(const Rows& rows, Packed out) {
  pack_transposed<2>(
      rows, out, [&](int64_t r, int64_t w) { return load_pairs(rows.row[r], w, rows.dim, rows.dim_stride); },
      [&](int64_t r, int64_t w) { return _mm512_loadu_ps(rows.row[r] + 4 * w); });
}

/// Tile columns at and beyond k hold 0 up to a whole vector pair, so nothing is masked here.
void narrow_pairs(const float* tile, int64_t tile_row, int64_t m, int64_t k, float* words, int64_t row) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; p += 2 * kLanes) {
      const float* x = tile + i * tile_row + p;
      store(words + i * row + p / 2, (F)_mm512_cvtne2ps_pbh(load(x + kLanes), load(x)));
    }
}

void narrow_pairs_transposed(const float* tile, int64_t tile_row, int64_t k, int64_t m, float* words,
                             int64_t row) {
  for (int64_t p = 0; p < k; p += 2)
    for (int64_t i = 0; i < m; i += kLanes) {
      const float* x = tile + p * tile_row + i;
      const F second = p + 1 < k ? load(x + tile_row) : F{};
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, load(x));  // low half: row p
      const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
      const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
      store(words + p / 2 * row + i, (F)_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

constexpr Kernels with_pairs(Kernels k) {
  k.bf16 = {2,
            gemm<PairDot>,
            pack_pair_rows,
            pack_pair_cols,
            load_pair_rows,
            narrow_pairs,
            narrow_pairs_transposed};
  k.peak_bf16 = [](int64_t rounds) { return 2.0 * peak<PairDot>(rounds); };
  return k;
}

const Kernels kKernels = with_pairs(make_kernels(CpuIsa::kAvx512Bf16));

}  // namespace attngraph::cpu::avx512bf16
