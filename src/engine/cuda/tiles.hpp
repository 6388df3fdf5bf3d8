#pragma once

#include <cstdint>

namespace attngraph::cuda {

/// Tensor-core tiles: `warps` warps own `warp_rows` rows each; `columns` rows of the other side
/// stream through shared memory. Both sides have heads padded to `dim`, elements of two bytes.
struct TensorTile {
  int dim, warps, warp_rows, columns, stages;

  constexpr int threads() const { return warps * 32; }
  constexpr int rows() const { return warps * warp_rows; }
  constexpr int row_bytes() const { return rows() * dim * 2; }      ///< one operand of the own side
  constexpr int column_bytes() const { return columns * dim * 2; }  ///< one operand of the other side
};

/// Largest head dimension of each family's padded tiles.
inline constexpr int kTileDims[] = {64, 128, 256};
inline constexpr int kMaxHeadDim = 256;

/// Forward: Q stays, one buffer each for K and V: the load of one hides behind the product of the other.
constexpr TensorTile forward_tile(int dim) {
  if (dim == 64) return {64, 4, 32, 128, 1};
  if (dim == 128) return {128, 4, 32, 64, 1};
  return {256, 4, 16, 64, 1};
}
constexpr int forward_shared_bytes(TensorTile t) { return t.row_bytes() + 2 * t.column_bytes(); }

/// Few query rows: all warps own the same 16 rows and take 16 keys of each tile.
constexpr TensorTile decode_tile(int dim) { return {dim, 4, 16, 64, dim == 64 ? 4 : dim == 128 ? 3 : 2}; }
inline constexpr int kDecodeRows = 16;
constexpr int decode_shared_bytes(TensorTile t) {
  const int pipeline = 2 * t.stages * t.column_bytes();
  const int merge = t.warps * kDecodeRows * (t.dim + 2) * 4;
  return kDecodeRows * t.dim * 2 + (pipeline > merge ? pipeline : merge);
}

/// dq: Q and dO stay, K and V stream.
constexpr TensorTile dq_tile(int dim) {
  if (dim == 64) return {64, 4, 32, 64, 2};
  if (dim == 128) return {128, 4, 32, 32, 2};
  return {256, 4, 16, 32, 2};
}
constexpr int dq_shared_bytes(TensorTile t) { return 2 * t.row_bytes() + 2 * t.stages * t.column_bytes(); }

/// dk and dv: K and V stay, Q, dO, lse and delta stream. At dim 256 dk and dv are two launches: both
/// accumulators would need 256 registers a thread.
constexpr TensorTile dkdv_tile(int dim) {
  if (dim == 64) return {64, 4, 16, 64, 2};
  if (dim == 128) return {128, 8, 16, 64, 2};
  return {256, 4, 16, 32, 2};
}
constexpr int dkdv_shared_bytes(TensorTile t) {
  return 2 * t.row_bytes() + t.stages * (2 * t.column_bytes() + 2 * t.columns * 4);
}
constexpr bool dkdv_in_one_launch(int dim) { return dim <= 128; }

/// dq, dk and dv together: as dk and dv, and a tile of ds, through which each warp's share of dq meets the
/// keys of all. At dim 256 the accumulators do not fit.
constexpr int kMaxOnePassDim = 128;
constexpr TensorTile one_pass_tile(int dim) {
  if (dim == 64) return {64, 4, 32, 32, 2};
  return {128, 8, 16, 64, 2};
}
constexpr int one_pass_shared_bytes(TensorTile t) { return dkdv_shared_bytes(t) + t.rows() * t.columns * 2; }

/// General tiles: plain FMA in float32, `kTile` rows by `kTile` rows, eight threads a row.
inline constexpr int kGeneralLanes = 8;
constexpr int general_tile(int max_dim) { return max_dim <= 128 ? 32 : 16; }
constexpr int general_max_dim(int tile) { return tile == 32 ? 128 : 256; }
/// A row's length in shared memory: odd, so that neighbouring rows start in different banks.
constexpr int general_pitch(int dim) { return dim | 1; }
constexpr int64_t general_forward_shared_bytes(int qk_dim, int v_dim) {
  const int tile = general_tile(qk_dim > v_dim ? qk_dim : v_dim);
  const int wide = qk_dim > v_dim ? qk_dim : v_dim;
  return int64_t{4} * tile * (general_pitch(qk_dim) + general_pitch(wide) + general_pitch(tile));
}
constexpr int64_t general_backward_shared_bytes(int qk_dim, int v_dim) {
  const int tile = general_tile(qk_dim > v_dim ? qk_dim : v_dim);
  return int64_t{4} * tile * 2 * (general_pitch(qk_dim) + general_pitch(v_dim) + general_pitch(tile));
}

inline constexpr int kMaxSplits = 128;   ///< of the keys, that merge_splits joins
inline constexpr int kRowThreads = 256;  ///< block size of the row kernels
inline constexpr int kRowsPerWarp = 4;   ///< of those that take a warp a row
inline constexpr int kWideLanes = 8;     ///< lanes a row of 16-byte chunks

static_assert(forward_shared_bytes(forward_tile(256)) <= 101'376, "sm_86 gives a block 99 KB");
static_assert(general_backward_shared_bytes(256, 256) <= 101'376);
static_assert(one_pass_shared_bytes(one_pass_tile(128)) <= 166'912, "sm_80 gives a block 163 KB");

}  // namespace attngraph::cuda
