#pragma once

#include <cstdint>

/// Tiles of the float32 kernels, apart from the others' so that their change compiles nothing else anew.
namespace attngraph::cuda {

/// Heads padded to `dim`; a block owns `rows` rows, tiles of `columns` rows of the other side stream through
/// shared memory.
struct FloatTile {
  int dim, columns;

  static constexpr int rows = 64, threads = 128;
  constexpr int row_bytes() const { return rows * dim * 4; }        ///< one operand of the own side
  constexpr int column_bytes() const { return columns * dim * 4; }  ///< one operand of the other side
  constexpr int weight_bytes() const { return rows * columns * 4; }
};

/// Padded head dims.
inline constexpr int kFloatDims[] = {64, 128};
/// The first of kFloatDims that holds both; 0: none does.
constexpr int float_dim(int64_t qk_dim, int64_t v_dim) {
  for (const int dim : kFloatDims)
    if (qk_dim <= dim && v_dim <= dim) return dim;
  return 0;
}

/// Q stays, one buffer each for K and V, and the weights.
constexpr FloatTile float_forward_tile(int dim) { return {dim, 64}; }
constexpr int float_forward_shared_bytes(FloatTile t) {
  return t.row_bytes() + 2 * t.column_bytes() + t.weight_bytes();
}

/// K and V stay, Q and dO stream; first the weights, then ds lie in the same tile. At dim 128 two blocks fit
/// a multiprocessor with half of the columns.
constexpr FloatTile float_backward_tile(int dim) { return {dim, dim == 64 ? 64 : 32}; }
constexpr int float_backward_shared_bytes(FloatTile t) {
  return 2 * t.row_bytes() + 2 * t.column_bytes() + t.weight_bytes();
}

}  // namespace attngraph::cuda
