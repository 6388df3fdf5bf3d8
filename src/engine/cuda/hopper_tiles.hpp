#pragma once

#include <cstdint>

#include "engine/cuda/tiles.hpp"

/// Tiles of the sm_90a kernels, apart from the others' so that their change compiles nothing else anew.
namespace attngraph::cuda {

/// Padded head dims of sm_90a tiles: of q and k, which names the pair, and of v and o.
struct HopperDims {
  int qk, v;
};
inline constexpr HopperDims kHopperDims[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
/// The width of q and k in the first of kHopperDims that holds both; 0: none does.
constexpr int hopper_dim(int64_t qk_dim, int64_t v_dim) {
  for (const HopperDims dims : kHopperDims)
    if (qk_dim <= dims.qk && v_dim <= dims.v) return dims.qk;
  return 0;
}
static_assert(hopper_dim(192, 128) == 192 && hopper_dim(192, 136) == 256 && hopper_dim(64, 72) == 128);

/// What a kernel makes of products besides masking them by the band: nothing, scores through softcap, ALiBi
/// or a scale that does not keep their order, or all of that with a bias, a mask or dropout.
enum class Scores : uint8_t { kPlain, kBent, kRead };

/// Shared memory of a block on sm_90, and the part of it that tiles leave to small tables.
inline constexpr int kHopperSharedBytes = 232'448, kHopperTableBytes = 2048;

/// Largest softcap whose scores the sm_90a kernels have within the 1e-4 that stats are compared with. They
/// take cap (1 - 2 r) from r = 1 / (e^(2 x / cap) + 1), which errs by 2.5 * 2^-24 where it is a half.
inline constexpr double kMaxQuickSoftcap = 256.0;
static_assert(kMaxQuickSoftcap * 2 * 2.5 / (1 << 24) < 1e-4);

/// How tiles of rows follow each other in the forward on sm_90a.
enum class HopperTurn : uint8_t {
  kAlone,   ///< one has ended when the next begins
  kJoined,  ///< each has one of two buffers of Q, and its first product starts beside the last of the one
            ///< before
};

/// Forward on sm_90a: two warpgroups own 64 rows each, one more copies; K and V have `k_stages` and
/// `v_stages` buffers of `keys` rows each. Elements of two bytes.
struct HopperTile {
  int dim, v_dim;  ///< padded, of q and k, and of v and o
  int keys, k_stages, v_stages;
  HopperTurn turn;
  bool reads = false;  ///< a bias or a mask, of which each warp has a tile of its rows in shared memory

  static constexpr int consumers = 2, threads = 384;
  static constexpr int group_rows = 64, rows = group_rows * consumers;
  static constexpr int copy_registers = 40, product_registers = 232;
  constexpr bool joins() const { return turn == HopperTurn::kJoined; }
  /// Registers hold the weights of a tile of keys beside its scores. These are then weighed by the maximum so
  /// far before it is known whether one exceeds it, and warpgroups take turns at that.
  constexpr bool keeps_scores() const { return joins() && dim == 64; }
  constexpr int q_buffers() const { return joins() ? 2 : 1; }
  constexpr int q_box_rows() const { return joins() ? group_rows : rows; }  ///< of one copy
  constexpr int q_bytes() const { return rows * dim * 2; }                  ///< one buffer
  constexpr int k_bytes() const { return keys * dim * 2; }                  ///< one buffer
  constexpr int v_bytes() const { return keys * v_dim * 2; }                ///< one buffer
  constexpr int matrix_bytes() const { return reads ? rows * keys * 4 : 0; }
};
/// Registers that warpgroups hand to each other stay within what the launch gave the block: a warpgroup that
/// asks for more waits forever.
constexpr bool shares_registers(int threads, int copy_registers, int product_registers) {
  const int at_launch = 65'536 / threads / 8 * 8;  // a thread, as __launch_bounds__ leaves it
  return 128 * copy_registers + (threads - 128) * product_registers <= at_launch * threads;
}
/// `dim` is one of kHopperDims.
constexpr HopperTile hopper_forward_tile(int dim, Scores scores = Scores::kPlain) {
  if (scores == Scores::kRead && dim == 128) return {128, 128, 128, 2, 2, HopperTurn::kAlone, true};
  if (scores == Scores::kRead) return {64, 64, 128, 4, 4, HopperTurn::kAlone, true};
  if (dim == 256) return {256, 256, 80, 2, 2, HopperTurn::kAlone};
  if (dim == 192) return {192, 128, 128, 2, 2, HopperTurn::kAlone};
  if (dim == 128) return {128, 128, 128, 2, 3, HopperTurn::kJoined};
  if (scores == Scores::kBent) return {64, 64, 128, 4, 4, HopperTurn::kAlone};
  return {64, 64, 128, 4, 4, HopperTurn::kJoined};
}
constexpr int hopper_shared_bytes(HopperTile t) {
  constexpr int kAlignment = 1024;  // of a swizzled panel
  return t.q_buffers() * t.q_bytes() + t.k_stages * t.k_bytes() + t.v_stages * t.v_bytes() +
         t.matrix_bytes() + kAlignment;
}
constexpr bool fits_multiprocessor(HopperTile t) {
  return hopper_shared_bytes(t) + kHopperTableBytes <= kHopperSharedBytes &&
         shares_registers(t.threads, t.copy_registers, t.product_registers);
}
static_assert(fits_multiprocessor(hopper_forward_tile(64)));
static_assert(fits_multiprocessor(hopper_forward_tile(128)));
static_assert(fits_multiprocessor(hopper_forward_tile(64, Scores::kRead)));
static_assert(fits_multiprocessor(hopper_forward_tile(128, Scores::kRead)));
static_assert(fits_multiprocessor(hopper_forward_tile(192)));
static_assert(fits_multiprocessor(hopper_forward_tile(256)));

/// Backward on sm_90a: two warpgroups compute, one more copies; Q and dO stream through `stages` buffers of
/// `q_rows` rows. Each of the two owns half of the block's `keys`, of whose scores it has `part_rows` rows at
/// once; two warps of the third add dq.
struct HopperGradientTile {
  int dim, v_dim;  ///< padded, of q and k, and of v and o
  int keys, q_rows, part_rows, stages;
  int ds_buffers;  ///< of a step's gradients of scores of both warpgroups
  int dq_buffers;  ///< of a step's dq of both warpgroups

  static constexpr int threads = 384;
  static constexpr int copy_registers = 40, product_registers = 232;
  constexpr int k_bytes() const { return keys * dim * 2; }
  constexpr int v_bytes() const { return keys * v_dim * 2; }
  constexpr int q_bytes() const { return q_rows * dim * 2; }       ///< one buffer
  constexpr int dout_bytes() const { return q_rows * v_dim * 2; }  ///< one buffer
  constexpr int ds_bytes() const { return keys * q_rows * 2; }     ///< one buffer
  static constexpr int dq_bytes = 64 * 64 * 4;                     ///< what a warpgroup adds to dq in a step
};
static_assert(shares_registers(HopperGradientTile::threads, HopperGradientTile::copy_registers,
                               HopperGradientTile::product_registers));
/// `dim` is one of kHopperDims and not wide. At dim 64 two buffers of dq are 3 % slower; a bias or a mask
/// leaves no memory for them, nor there for two of ds. Parts of 64 rows leave registers for more than plain
/// scores.
constexpr HopperGradientTile hopper_gradient_tile(int dim, Scores scores = Scores::kPlain) {
  const bool reads = scores == Scores::kRead;
  if (dim == 64) return {64, 64, 128, 128, scores == Scores::kPlain ? 128 : 64, 2, reads ? 1 : 2, 1};
  return {128, 128, 128, 64, 64, 2, 2, reads ? 1 : 2};
}
constexpr int hopper_shared_bytes(HopperGradientTile t, Scores scores) {
  const int matrix_bytes = scores == Scores::kRead ? t.keys * t.q_rows * 4 : 0;
  return t.k_bytes() + t.v_bytes() + t.stages * (t.q_bytes() + t.dout_bytes()) + t.ds_buffers * t.ds_bytes() +
         t.dq_buffers * 2 * t.dq_bytes + matrix_bytes;
}
/// Of such a block: before its tiles, which begin at a multiple of 1024.
inline constexpr int kGradientTableBytes = 3072;

/// Heads so wide that sums of dq, dk and dv do not fit a block together; backward computes scores twice.
constexpr bool is_wide(int dim) { return dim > 128; }

/// dk and dv on sm_90a of wide heads: one warpgroup owns the sums of dv of a tile of keys, another those of
/// dk, one more copies; Q and dO stream through `stages` buffers of `q_rows` rows.
struct HopperDkdvTile {
  int dim, v_dim;  ///< padded, of q and k, and of v and o
  int q_rows, stages;

  static constexpr int keys = 64, threads = 384;
  static constexpr int copy_registers = 56, product_registers = 224;
  static constexpr int part_rows = 64, parts_kept = 2;  ///< of the weights that one warpgroup gives the other
  static constexpr int weights_bytes = keys * part_rows * 2;
  constexpr int k_bytes() const { return keys * dim * 2; }
  constexpr int v_bytes() const { return keys * v_dim * 2; }
  constexpr int q_bytes() const { return q_rows * dim * 2; }       ///< one buffer
  constexpr int dout_bytes() const { return q_rows * v_dim * 2; }  ///< one buffer
};
static_assert(shares_registers(HopperDkdvTile::threads, HopperDkdvTile::copy_registers,
                               HopperDkdvTile::product_registers));
/// `dim` is wide. Steps of 64 queries leave registers for more than plain scores.
constexpr HopperDkdvTile hopper_dkdv_tile(int dim, bool extras) {
  if (dim == 256) return {256, 256, 64, 2};
  if (extras) return {192, 128, 64, 3};
  return {192, 128, 128, 2};
}
constexpr int hopper_shared_bytes(HopperDkdvTile t) {
  constexpr int kAlignment = 1024;
  return t.k_bytes() + t.v_bytes() + t.stages * (t.q_bytes() + t.dout_bytes()) +
         HopperDkdvTile::parts_kept * HopperDkdvTile::weights_bytes + kAlignment;
}

/// dq on sm_90a of wide heads: two warpgroups own 64 rows each, one more copies; K and V stream
/// through buffers of `keys` rows.
struct HopperDqTile {
  int dim, v_dim;  ///< padded, of q and k, and of v and o
  int keys, k_stages, v_stages;

  static constexpr int rows = 128, threads = 384;
  static constexpr int copy_registers = 56, product_registers = 224;
  constexpr int q_bytes() const { return rows * dim * 2; }
  constexpr int dout_bytes() const { return rows * v_dim * 2; }
  constexpr int k_bytes() const { return keys * dim * 2; }    ///< one buffer
  constexpr int v_bytes() const { return keys * v_dim * 2; }  ///< one buffer
};
static_assert(shares_registers(HopperDqTile::threads, HopperDqTile::copy_registers,
                               HopperDqTile::product_registers));
/// `dim` is wide.
constexpr HopperDqTile hopper_dq_tile(int dim) {
  if (dim == 256) return {256, 256, 64, 2, 1};
  return {192, 128, 96, 2, 2};
}
constexpr int hopper_shared_bytes(HopperDqTile t) {
  constexpr int kAlignment = 1024;
  return t.q_bytes() + t.dout_bytes() + t.k_stages * t.k_bytes() + t.v_stages * t.v_bytes() + kAlignment;
}

/// dbias on sm_90a: two warpgroups own 64 rows each of a tile of query rows by keys, one more copies; a
/// step's tiles of Q, K, dO and V pass one after the other through a ring of `stages` buffers.
struct HopperDbiasTile {
  HopperTile scores;
  int stages;

  constexpr int bytes() const { return scores.keys * scores.dim * 2; }  ///< one buffer
};
/// `dim` is one of kHopperDims and not wide.
constexpr HopperDbiasTile hopper_dbias_tile(int dim) {
  return {hopper_forward_tile(dim, Scores::kRead), dim == 64 ? 10 : 5};
}
/// What a forward's tile that reads a bias is, in either head dim.
inline constexpr int kHopperDbiasTile = 128;
constexpr bool is_dbias_tile(HopperTile t) {
  return t.rows == kHopperDbiasTile && t.keys == kHopperDbiasTile && t.v_dim == t.dim;
}
static_assert(is_dbias_tile(hopper_dbias_tile(64).scores) && is_dbias_tile(hopper_dbias_tile(128).scores));
constexpr int hopper_shared_bytes(HopperDbiasTile t) {
  constexpr int kAlignment = 1024;
  return t.stages * t.bytes() + t.scores.matrix_bytes() + kAlignment;
}
static_assert(hopper_shared_bytes(hopper_dbias_tile(64)) + kHopperTableBytes <= kHopperSharedBytes);
static_assert(hopper_shared_bytes(hopper_dbias_tile(128)) + kHopperTableBytes <= kHopperSharedBytes);

constexpr bool fits_backward(int dim, Scores scores) {
  return hopper_shared_bytes(hopper_gradient_tile(dim, scores), scores) + kGradientTableBytes <=
         kHopperSharedBytes;
}
static_assert(fits_backward(64, Scores::kPlain) && fits_backward(64, Scores::kBent) &&
              fits_backward(64, Scores::kRead));
static_assert(fits_backward(128, Scores::kPlain) && fits_backward(128, Scores::kRead));
static_assert(hopper_shared_bytes(hopper_dkdv_tile(192, true)) + 2 * kHopperTableBytes <= kHopperSharedBytes);
static_assert(hopper_shared_bytes(hopper_dkdv_tile(192, false)) + 2 * kHopperTableBytes <=
              kHopperSharedBytes);
static_assert(hopper_shared_bytes(hopper_dkdv_tile(256, false)) + 2 * kHopperTableBytes <=
              kHopperSharedBytes);
static_assert(hopper_shared_bytes(hopper_dq_tile(192)) + kHopperTableBytes <= kHopperSharedBytes);
static_assert(hopper_shared_bytes(hopper_dq_tile(256)) + kHopperTableBytes <= kHopperSharedBytes);

/// Decode on sm_90a: `warps` warps take 16 of a tile's `keys` each, one more copies; K and V have `stages`
/// buffers. Two blocks fit a multiprocessor. Sizes of clusters are powers of 2.
struct HopperDecodeTile {
  int dim, stages;

  static constexpr int keys = 64, warps = 4, max_cluster = 8;
  constexpr int threads() const { return 32 * (warps + 1); }
  constexpr int key_bytes() const { return keys * dim * 2; }
  constexpr int ring_bytes() const { return 2 * stages * key_bytes(); }
};
constexpr HopperDecodeTile hopper_decode_tile(int dim) { return {dim, dim == 64 ? 6 : 3}; }
constexpr int hopper_shared_bytes(HopperDecodeTile t) {
  constexpr int kAlignment = 1024;
  const int sent_bytes = kDecodeRows * t.dim * 4;  // o in float32, by all blocks of a cluster together
  return t.ring_bytes() + sent_bytes + kAlignment;
}
static_assert(2 * (hopper_shared_bytes(hopper_decode_tile(128)) + 6144) <= kHopperSharedBytes);

}  // namespace attngraph::cuda
