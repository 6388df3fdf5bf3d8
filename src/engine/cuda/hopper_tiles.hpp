#pragma once

#include <cstdint>

/// Tiles of the sm_90a kernels, apart from the others' so that their change compiles nothing else anew.
namespace attngraph::cuda {

/// Forward on sm_90a: `consumers` warpgroups own 64 rows each, one more copies; K and V have `stages` buffers
/// of `keys` rows each. Elements of two bytes, heads padded to `dim`.
struct HopperTile {
  int dim, consumers, keys, stages;

  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int rows() const { return 64 * consumers; }
  constexpr int row_bytes() const { return rows() * dim * 2; }  ///< Q, and o on its way out
  constexpr int key_bytes() const { return keys * dim * 2; }    ///< one tile of K or V
  static constexpr int copy_registers = 40, product_registers = 232;
};
/// Registers that warpgroups hand to each other stay within what the launch gave the block: a warpgroup that
/// asks for more waits forever.
constexpr bool shares_registers(int threads, int copy_registers, int product_registers) {
  const int at_launch = 65'536 / threads / 8 * 8;  // a thread, as __launch_bounds__ leaves it
  return 128 * copy_registers + (threads - 128) * product_registers <= at_launch * threads;
}
static_assert(shares_registers(384, HopperTile::copy_registers, HopperTile::product_registers));
constexpr HopperTile hopper_forward_tile(int dim) { return {dim, 2, 128, 2}; }
constexpr int hopper_shared_bytes(HopperTile t) {
  constexpr int kAlignment = 1024;  // of a swizzled panel
  return 2 * t.row_bytes() + 2 * t.stages * t.key_bytes() + kAlignment;
}
static_assert(hopper_shared_bytes(hopper_forward_tile(128)) + 4096 <= 232'448, "sm_90 gives a block 227 KB");

/// Backward on sm_90a: two warpgroups own 64 keys each, one more copies; Q and dO stream through two buffers
/// of `q_rows` rows.
struct HopperGradientTile {
  int dim, q_rows;

  static constexpr int keys = 128, stages = 2, threads = 384;
  static constexpr int copy_registers = 24, product_registers = 240;
  constexpr int key_bytes() const { return keys * dim * 2; }    ///< K or V
  constexpr int row_bytes() const { return q_rows * dim * 2; }  ///< one buffer of Q or dO
  constexpr int ds_bytes() const { return keys * q_rows * 2; }
};
static_assert(shares_registers(HopperGradientTile::threads, HopperGradientTile::copy_registers,
                               HopperGradientTile::product_registers));
constexpr HopperGradientTile hopper_gradient_tile(int dim) { return {dim, dim == 64 ? 128 : 64}; }
constexpr int hopper_shared_bytes(HopperGradientTile t) {
  constexpr int kAlignment = 1024;
  return 2 * t.key_bytes() + 2 * t.stages * t.row_bytes() + 2 * t.ds_bytes() + kAlignment;
}
static_assert(hopper_shared_bytes(hopper_gradient_tile(128)) + 8192 <= 232'448);

}  // namespace attngraph::cuda
