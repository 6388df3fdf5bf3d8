#pragma once

#include <cstddef>
#include <cstdint>

#include "attngraph/types.hpp"

namespace attngraph::cpu {

/// Widest float vector of any kernel set, in floats: rows of scratch are padded to it.
inline constexpr int64_t kMaxLanes = 16;

/// c[m, n] = or += a[m, k] b[k, n], accumulated in float32.
///
/// Shapes: a's element (i, p) is a[i * a_row + p * a_step]; b lies in panels of Kernels::panel_cols
///         columns: element (p, j) is b[j / cols * b_panel + p * cols + j % cols]; c's row i begins at
///         c[i * c_row] and is written up to n rounded up to whole vectors.
/// Units:  32-bit words: one float, or two neighbours along k in bfloat16 (k counts words).
struct Gemm {
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 0;
  const float* b = nullptr;
  int64_t b_panel = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t m = 0, n = 0, k = 0;
  bool accumulate = false;
};

/// Rows of one tensor, wherever they lie.
struct Rows {
  const std::byte* const* row = nullptr;  ///< address of element 0 of each row; null: a row of zeros
  int64_t count = 0;
  int64_t dim = 0, dim_stride = 0;  ///< elements
  DataType dtype = DataType::kF32;
};

/// Where a packing writes: words, with `stride` from panel to panel, or from row to row.
struct Packed {
  float* words = nullptr;
  int64_t stride = 0;
};

/// What becomes of one row of scores q.k before the softmax: x, in place.
///
/// Units:  columns count within the row's tile. Only columns keep_begin .. keep_end-1 with a mask byte
///         that is not 0 are kept; the others, up to `padded`, become -inf.
/// Source: contract section 3, steps 1 to 5.
struct ScoreRow {
  float* x = nullptr;
  int64_t padded = 0;
  int64_t keep_begin = 0, keep_end = 0;
  float scale = 1.0F;               ///< of q.k; with softcap: scale / softcap
  float softcap = 0.0F;             ///< 0: none
  const float* bias = nullptr;      ///< null: none
  float slope = 0.0F;               ///< ALiBi
  float distance = 0.0F;            ///< of column 0 from the diagonal
  const std::byte* mask = nullptr;  ///< null: none
  float* softcap_slope = nullptr;   ///< when not null, receives 1 - tanh^2
};

/// One step of the online softmax over rows of scores: x becomes 2^(scale (x - max)) of its row.
///
/// Units:  max is one of the scores; `padded` is a multiple of kMaxLanes. max, sum and correction have one
///         element a row; kMaxLanes from any row on may be read. max is -inf before the first kept key.
struct SoftmaxRows {
  float* x = nullptr;
  int64_t x_row = 0, count = 0, padded = 0;
  float scale = 1.0F;  ///< positive
  float *max = nullptr, *sum = nullptr;
  float* correction = nullptr;  ///< out: what earlier sums and outputs are multiplied by
};

/// Gradient of rows of scores: x becomes p (through dropout), dp becomes ds. A row with infinite stats
/// sees nothing and becomes 0.
///
/// Source: contract section 6. A score of -inf is a key not kept.
struct GradientRows {
  float *x = nullptr, *dp = nullptr;
  int64_t row = 0, count = 0, padded = 0;
  float scale = 1.0F;                              ///< x times this is in natural units
  const float *stats = nullptr, *delta = nullptr;  ///< by row: natural, and do . o
  const float* kept = nullptr;                     ///< like x: 0 or 1 / (1 - dropout_p); null: no dropout
};

/// Dropout factors of rows i .. i+count-1 with keys j .. j+padded-1: 0 or `factor`.
struct DropoutTile {
  uint64_t seed = 0, offset = 0, threshold = 0;
  uint32_t head_index = 0;
  int64_t i = 0, count = 0, j = 0;  ///< j is even
  float factor = 1.0F;
  float* kept = nullptr;
  int64_t kept_row = 0, padded = 0;
};

/// Rows that a kernel brings into the cache while it computes, spread over its work: asked for all at once
/// they would fill the buffers of outstanding loads, and the work would wait for them.
struct Upcoming {
  const std::byte* const* row = nullptr;  ///< a null row is left out
  int64_t count = 0, bytes = 0;           ///< bytes of each
};

/// out[r, j] = a[r] . row j, for few rows of a; row-wise, without packing.
struct Dots {
  const float* a = nullptr;
  int64_t a_row = 0, a_count = 0;
  Rows rows;  ///< dim_stride 1
  float* out = nullptr;
  int64_t out_row = 0;
  Upcoming upcoming;  ///< at most as many as `rows`
};

/// out[r] += sum over j of weight[r, j] * row j, for few rows of weights.
struct WeightedSum {
  const float* weight = nullptr;
  int64_t weight_row = 0, weight_count = 0;
  Rows rows;  ///< dim_stride 1
  float* out = nullptr;
  int64_t out_row = 0;  ///< written up to a whole panel of columns
  Upcoming upcoming;
};

/// out[i] = a_weight * a[i] + b_weight * b[i], rounded to nearest even; null a or b: zeros, not read.
///
/// Units:  strides in elements.
struct WeightedPair {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* out = nullptr;
  int64_t a_stride = 1, b_stride = 1, out_stride = 1;
  float a_weight = 0.0F, b_weight = 0.0F;
  int64_t count = 0;
  DataType dtype = DataType::kF32;  ///< of all three
};

/// Matrix products with operands as 32-bit words: floats, or pairs of bfloat16.
struct Products {
  int64_t k_per_word = 1;
  void (*gemm)(const Gemm&) = nullptr;
  /// Operand b with the rows along k (the last word of an odd count is filled with 0).
  void (*pack_rows)(const Rows&, Packed) = nullptr;
  /// Operand b with the rows along n, to a whole panel; dim runs along k.
  void (*pack_cols)(const Rows&, Packed) = nullptr;
  /// Operand a with the rows along m; dim runs along k.
  void (*load_rows)(const Rows&, Packed) = nullptr;
  /// Operand a from a float tile of m rows, k columns; null: the tile itself serves.
  void (*narrow)(const float* tile, int64_t tile_row, int64_t m, int64_t k, float* words,
                 int64_t row) = nullptr;
  /// Operand a from a float tile of k rows, m columns, with a_row 1 and a_step `row`; null: as above.
  void (*narrow_transposed)(const float* tile, int64_t tile_row, int64_t k, int64_t m, float* words,
                            int64_t row) = nullptr;
};

/// The kernels of one instruction set. They take plain pointers and strides, and nothing of graphs.
struct Kernels {
  CpuIsa isa = CpuIsa::kPortable;
  int64_t panel_cols = 0;
  Products f32;
  Products bf16;  ///< k_per_word 0 when the instruction set has no bfloat16 products

  /// One row of any float type to floats, filled with 0 to `padded`.
  void (*widen)(const Rows& row, float* out, int64_t padded) = nullptr;
  /// out[i * stride] = x[i] * factor, rounded to nearest even.
  void (*store)(const float* x, int64_t count, float factor, std::byte* out, DataType dtype,
                int64_t stride) = nullptr;
  void (*score)(const ScoreRow&) = nullptr;
  void (*softmax)(const SoftmaxRows&) = nullptr;
  void (*gradient)(const GradientRows&) = nullptr;
  void (*dropout)(const DropoutTile&) = nullptr;
  void (*dots)(const Dots&) = nullptr;
  void (*weighted_sum)(const WeightedSum&) = nullptr;
  void (*weighted_pair)(const WeightedPair&) = nullptr;
  /// x[i] *= factor
  void (*scale)(float* x, int64_t count, float factor) = nullptr;
  /// x[i] *= y[i]
  void (*multiply)(float* x, const float* y, int64_t count) = nullptr;
  /// sum of x[i] * y[i] over whole vectors
  float (*dot)(const float* x, const float* y, int64_t padded) = nullptr;

  /// The ceilings that performance is measured against: runs `rounds` rounds of independent
  /// multiply-adds in registers and returns the floating point operations done.
  double (*peak_f32)(int64_t rounds) = nullptr;
  double (*peak_bf16)(int64_t rounds) = nullptr;  ///< null without bfloat16 products
};

/// The kernels of `isa`; whether this machine can run them is isa.hpp's business.
const Kernels& kernels(CpuIsa isa);

namespace portable {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx512bf16 {
extern const Kernels kKernels;
}

}  // namespace attngraph::cpu
