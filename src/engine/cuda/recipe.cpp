#include "engine/cuda/recipe.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/message.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/splits.hpp"
#include "engine/cuda/tensor_map.hpp"
#include "engine/cuda/tiles.hpp"
#include "problem/dropout.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

template <class To = int32_t>
To narrow(int64_t value) {
  return static_cast<To>(value);  // refusals() has bounded every size
}

int32_t tiles_of(int64_t rows, int64_t tile) { return narrow((rows + tile - 1) / tile); }

TensorView view_of(const Problem& problem, Role role) {
  const Operand& t = problem[role];
  TensorView view;
  if (!t.present) return view;
  for (size_t axis = 0; axis < 4; ++axis)
    view.extent[axis] = narrow(t.extent[axis]), view.stride[axis] = t.stride[axis];
  view.multiplier = t.multiplier;
  view.offsets_stride = t.offsets_stride;
  view.dtype = t.dtype, view.offsets_dtype = t.offsets_dtype;
  view.side = side_of(role);
  view.present = true, view.ragged = t.ragged;
  return view;
}

/// A ragged tensor of the q side that places packed rows; -1: by batch and row. dq, or what a forward has
/// written: their sequences share no slot, while those of other inputs may (contract section 2).
int32_t slot_role(const Problem& problem) {
  if (problem.has(Role::kDq) && !problem[Role::kDq].ragged) return -1;
  for (const Role role : {Role::kDq, Role::kStats, Role::kO})
    if (problem[role].present && problem[role].ragged) return static_cast<int32_t>(role);
  return -1;
}

Params params_of(const Problem& problem, const SliceShape& shape) {
  Params p;
  for (size_t i = 0; i < kNumRoles; ++i) p.tensors[i] = view_of(problem, static_cast<Role>(i));
  p.band = problem.band;
  p.q_heads = narrow(problem.q_heads), p.group = narrow(std::max<int64_t>(problem.group(), 1));
  p.q_len = narrow(problem.q_len), p.kv_len = narrow(problem.kv_len);
  p.qk_dim = narrow(problem.qk_dim), p.v_dim = narrow(problem.v_dim);
  p.slot_role = slot_role(problem);
  p.packed_slots = p.slot_role < 0 ? shape.batch * problem.q_len : problem.q_slots;
  p.scale = static_cast<float>(problem.scale), p.softcap = static_cast<float>(problem.softcap);
  p.scale_log2 = static_cast<float>(problem.scale * 1.4426950408889634);
  p.dropout = problem.dropout_p > 0.0;
  p.dropout_threshold = Dropout::threshold_of(problem.dropout_p);
  p.dropout_scale = problem.dropout_p < 1.0 ? static_cast<float>(1.0 / (1.0 - problem.dropout_p)) : 0.0f;
  p.stats_base2 = problem.stats_base == StatsBase::k2;
  p.by_group = Divisor(static_cast<uint32_t>(p.group));
  if (problem.has(Role::kPageTableK)) p.by_k_page = Divisor(narrow<uint32_t>(len(problem[Role::kK])));
  if (problem.has(Role::kPageTableV)) p.by_v_page = Divisor(narrow<uint32_t>(len(problem[Role::kV])));
  return p;
}

bool is_paged(const Problem& p) { return p.has(Role::kPageTableK) || p.has(Role::kPageTableV); }
/// Scores depend on more memory than the rows of q and k.
bool reads_matrices(const Problem& p) { return p.has(Role::kBias) || p.has(Role::kMask) || p.dropout_p > 0; }
/// As the kernels have it: a scale below every float32 is 0 there, and -inf times 0 is no -inf.
bool has_positive_scale(const Problem& p) { return static_cast<float>(p.scale) > 0; }
/// Scores are more than products times a positive scale; the plain softmax takes its maximum before the
/// scale.
bool bends_scores(const Problem& p) {
  return p.softcap > 0 || p.has(Role::kAlibiSlopes) || (p.pass == Pass::kForward && !has_positive_scale(p));
}
bool has_extras(const Problem& p) { return is_paged(p) || reads_matrices(p) || bends_scores(p); }

int tile_dim(const Problem& problem) {
  const int64_t widest = std::max(problem.qk_dim, problem.v_dim);
  for (const int dim : kTileDims)
    if (widest <= dim) return dim;
  return 0;
}

int32_t blocks_per_sm(const Target& target, int64_t shared_bytes) {
  return narrow(std::max<int64_t>(target.shared_memory_bytes / std::max<int64_t>(shared_bytes, 1), 1));
}

/// The mask grows with the position, so the last tiles have the most keys.
bool later_is_longer(const Problem& problem) { return problem.band.right.has_value(); }

void add_merge_splits(const Problem& problem, Recipe& recipe) {
  if (recipe.splits > 1)
    recipe.steps.push_back({{Family::kMergeSplits},
                            Grid::kKvHeads,
                            tiles_of(problem.q_len * problem.group(), kRowThreads / 32)});
}

void add_tensor_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = tile_dim(problem);
  const int64_t rows = problem.q_len * problem.group();
  const bool decode = rows <= kDecodeRows;
  const TensorTile tile = decode ? decode_tile(dim) : forward_tile(dim);
  const int64_t row_tiles = tiles_of(rows, decode ? kDecodeRows : tile.rows());
  const int64_t shared_bytes = decode ? decode_shared_bytes(tile) : forward_shared_bytes(tile);
  const int64_t slots = int64_t{target.sm_count} * std::min(blocks_per_sm(target, shared_bytes), 2);
  recipe.splits =
      key_splits(shape.batch * shape.kv_heads * row_tiles, slots, tiles_of(problem.kv_len, tile.columns));
  const InstanceKey key = decode ? InstanceKey{Family::kTensorDecode, problem.io, dim, true}
                                 : InstanceKey{Family::kTensorForward, problem.io, dim, has_extras(problem)};
  recipe.steps.push_back(
      {key, Grid::kKvHeads, narrow(row_tiles), recipe.splits, later_is_longer(problem), shared_bytes});
  add_merge_splits(problem, recipe);
}

/// Five products instead of seven, for a sum of dq whose order changes from run to run.
bool runs_in_one_pass(const Problem& problem) {
  return !problem.deterministic && !has_extras(problem) && tile_dim(problem) <= kMaxOnePassDim &&
         problem.has(Role::kDq) && problem.has(Role::kDk) && problem.has(Role::kDv);
}

/// After one pass: the sums of dq become dq.
void add_store_dq(const Problem& problem, Recipe& recipe) {
  recipe.steps.push_back({{Family::kStoreDq, problem.io, 0, false},
                          Grid::kKvHeads,
                          tiles_of(problem.q_len * problem.group(), kRowThreads / kWideLanes)});
}

void add_one_pass(const Problem& problem, Recipe& recipe) {
  const int dim = tile_dim(problem);
  const TensorTile tile = one_pass_tile(dim);
  recipe.dq_columns = dim;
  recipe.steps.push_back({{Family::kTensorBackward, problem.io, dim, false},
                          Grid::kKvHeads,
                          tiles_of(problem.kv_len, tile.rows()),
                          1,
                          false,
                          one_pass_shared_bytes(tile)});
  add_store_dq(problem, recipe);
}

int forward_rows(const Problem& problem, int dim) {
  const bool is_plain = !problem.band.left && !problem.band.right && !bends_scores(problem);
  return hopper_forward_rows(dim, problem.q_len, is_plain);
}

void add_hopper_forward(const Problem& problem, const Target& target, Recipe& recipe) {
  const int dim = hopper_dim(problem.qk_dim, problem.v_dim);
  const HopperTile tile = hopper_forward_tile(dim, forward_rows(problem, dim));
  recipe.multiprocessors = target.sm_count;
  // Half of L2 for the keys in use; the other half holds what passes by.
  const int64_t key_bytes = problem.kv_len * 2 * (problem.qk_dim + problem.v_dim);
  const int64_t together = std::max<int64_t>(target.l2_bytes / 2 / key_bytes, 1) * problem.group();
  recipe.heads_together = narrow(std::min<int64_t>(together, problem.batch * problem.q_heads));
  recipe.steps.push_back({{Family::kHopperForward, problem.io, dim, bends_scores(problem), tile.rows()},
                          Grid::kMultiprocessors,
                          tiles_of(problem.q_len, tile.rows()),
                          1,
                          later_is_longer(problem),
                          hopper_shared_bytes(tile)});
}

/// Rows of a piece of `keys` neighbouring keys that never crosses the end of a page.
int64_t rows_on_a_page(const Problem& problem, int64_t keys) {
  for (const auto& [table, role] :
       {std::pair{Role::kPageTableK, Role::kK}, std::pair{Role::kPageTableV, Role::kV}})
    if (problem.has(table)) keys = std::gcd(keys, len(problem[role]));
  return keys;
}

void add_hopper_decode(const Problem& problem, const Target& target, const SliceShape& shape,
                       Recipe& recipe) {
  const int dim = tile_dim(problem);
  const HopperDecodeTile tile = hopper_decode_tile(dim);
  const DecodeParts parts = decode_parts(shape.batch * shape.kv_heads, target.sm_count,
                                         tiles_of(problem.kv_len, HopperDecodeTile::keys));
  recipe.splits = parts.clusters;
  recipe.key_box_rows = narrow(rows_on_a_page(problem, HopperDecodeTile::keys));
  recipe.steps.push_back({{Family::kHopperDecode, problem.io, dim, false},
                          Grid::kKvHeads,
                          1,
                          parts.cluster * parts.clusters,
                          false,
                          hopper_shared_bytes(tile),
                          parts.cluster});
  add_merge_splits(problem, recipe);
}

/// Where asked, and where the sums that need no zeroing then save more than the turns cost: on an H200 4 % of
/// 32 causal sequences of 512 tokens; 4,096 tokens lose 2 %.
bool adds_dq_in_turn(const Problem& problem) {
  constexpr int64_t kFewKeys = 512;
  return problem.deterministic || (later_is_longer(problem) && problem.kv_len <= kFewKeys);
}

/// Wide heads: seven products instead of five, and nothing to add up between blocks.
void add_hopper_dq_dkdv(const Problem& problem, int dim, Recipe& recipe) {
  const HopperGradientTile tile = hopper_gradient_tile(dim);
  if (problem.has(Role::kDk) || problem.has(Role::kDv))
    recipe.steps.push_back({{Family::kHopperDkdv, problem.io, dim, false},
                            Grid::kKvHeads,
                            tiles_of(problem.kv_len, tile.keys),
                            1,
                            false,
                            hopper_shared_bytes(tile)});
  if (problem.has(Role::kDq))
    recipe.steps.push_back({{Family::kHopperDq, problem.io, dim, false},
                            Grid::kQHeads,
                            tiles_of(problem.q_len, HopperDqTile::rows),
                            1,
                            later_is_longer(problem),
                            hopper_shared_bytes(hopper_dq_tile(dim))});
}

void add_hopper_backward(const Problem& problem, Recipe& recipe) {
  const int dim = hopper_dim(problem.qk_dim, problem.v_dim);
  const HopperGradientTile tile = hopper_gradient_tile(dim);
  if (tile.by_sums) return add_hopper_dq_dkdv(problem, dim, recipe);
  recipe.dq_columns = dim;
  recipe.dq_in_turn = adds_dq_in_turn(problem);
  recipe.steps.push_back({{Family::kHopperBackward, problem.io, dim, false},
                          Grid::kKvHeads,
                          tiles_of(problem.kv_len, tile.keys),
                          1,
                          recipe.dq_in_turn,
                          hopper_shared_bytes(tile)});
  add_store_dq(problem, recipe);
}

void add_tensor_backward(const Problem& problem, Recipe& recipe) {
  if (runs_in_one_pass(problem)) return add_one_pass(problem, recipe);
  const int dim = tile_dim(problem);
  const InstanceKey key{Family::kTensorDq, problem.io, dim, has_extras(problem)};
  if (problem.has(Role::kDq) || problem.has(Role::kDalibiSlopes))
    recipe.steps.push_back({key, Grid::kKvHeads,
                            tiles_of(problem.q_len * problem.group(), dq_tile(dim).rows()), 1,
                            later_is_longer(problem), dq_shared_bytes(dq_tile(dim))});
  const auto add = [&](Family family) {
    InstanceKey of_family = key;
    of_family.family = family;
    recipe.steps.push_back({of_family, Grid::kKvHeads, tiles_of(problem.kv_len, dkdv_tile(dim).rows()), 1,
                            false, dkdv_shared_bytes(dkdv_tile(dim))});
  };
  if (dkdv_in_one_launch(dim)) {
    if (problem.has(Role::kDk) || problem.has(Role::kDv)) add(Family::kTensorDkdv);
    return;
  }
  if (problem.has(Role::kDk)) add(Family::kTensorDk);
  if (problem.has(Role::kDv)) add(Family::kTensorDv);
}

int general_tile_of(const Problem& problem) {
  return general_tile(narrow<int>(std::max(problem.qk_dim, problem.v_dim)));
}
int64_t general_shared_bytes(const Problem& problem) {
  const int qk_dim = narrow<int>(problem.qk_dim), v_dim = narrow<int>(problem.v_dim);
  return problem.pass == Pass::kForward ? general_forward_shared_bytes(qk_dim, v_dim)
                                        : general_backward_shared_bytes(qk_dim, v_dim);
}

void add_general(const Problem& problem, Recipe& recipe) {
  const int tile = general_tile_of(problem);
  const auto add = [&](Family family, Grid grid, int64_t rows) {
    recipe.steps.push_back({{family, DataType::kF32, tile, true},
                            grid,
                            tiles_of(rows, tile),
                            1,
                            false,
                            general_shared_bytes(problem)});
  };
  if (problem.pass == Pass::kForward) return add(Family::kGeneralForward, Grid::kQHeads, problem.q_len);
  if (problem.has(Role::kDq) || problem.has(Role::kDalibiSlopes))
    add(Family::kGeneralDq, Grid::kQHeads, problem.q_len);
  if (problem.has(Role::kDk) || problem.has(Role::kDv))
    add(Family::kGeneralDkdv, Grid::kKvHeads, problem.kv_len);
}

void add_sums(const Problem& problem, const SliceShape& shape, Recipe& recipe) {
  recipe.keeps_dbias =
      problem.has(Role::kDbias) && (shape.batch < problem.batch || shape.kv_heads < problem.kv_heads);
  if (problem.has(Role::kDbias))
    recipe.steps.push_back({{Family::kGeneralDbias, DataType::kF32, general_tile_of(problem), true},
                            Grid::kBias,
                            1,
                            1,
                            false,
                            general_shared_bytes(problem)});
  const bool head_sums = problem.has(Role::kDsink) || problem.has(Role::kDalibiSlopes);
  if (head_sums) recipe.steps.push_back({{Family::kHeadSums}, Grid::kHeads});
  if (head_sums || recipe.keeps_dbias) recipe.steps.push_back({{Family::kStoreSums}, Grid::kSums});
}

/// The first reason why 16-byte copies of whole rows cannot move the tensor.
std::string why_not_aligned(const Problem& problem, Role role) {
  const Operand& t = problem[role];
  if (t.dtype != problem.io) return text(role, " is not of q's type");
  if (dim_stride(t) != 1 && dim(t) > 1) return text(role, " has dim stride ", dim_stride(t));
  constexpr int64_t kElements = 8;  // of two bytes in 16
  for (const int64_t stride : {batch_stride(t), head_stride(t), len_stride(t), t.ragged ? t.multiplier : 0})
    if (stride % kElements != 0) return text(role, " has a stride or multiplier of ", stride);
  if (t.alignment % 16 != 0) return text(role, " is aligned to ", t.alignment, " bytes");
  return {};
}

}  // namespace

std::string why_not_tensor_cores(const Problem& problem, const Target& target) {
  if (problem.io != DataType::kF16 && problem.io != DataType::kBf16) return "f32 has no tensor-core kernel";
  if (problem.qk_dim == 0 || problem.v_dim == 0 || problem.qk_dim % 8 != 0 || problem.v_dim % 8 != 0)
    return text("head dims ", problem.qk_dim, " and ", problem.v_dim, " are no multiples of 8");
  for (const Role role :
       {Role::kQ, Role::kK, Role::kV, Role::kO, Role::kDo, Role::kDq, Role::kDk, Role::kDv}) {
    if (!problem.has(role)) continue;
    if (std::string why = why_not_aligned(problem, role); !why.empty()) return why;
  }
  const int dim = tile_dim(problem);
  const int64_t bytes =
      problem.pass == Pass::kForward
          ? std::max(forward_shared_bytes(forward_tile(dim)), decode_shared_bytes(decode_tile(dim)))
          : std::max(dq_shared_bytes(dq_tile(dim)), runs_in_one_pass(problem)
                                                        ? one_pass_shared_bytes(one_pass_tile(dim))
                                                        : dkdv_shared_bytes(dkdv_tile(dim)));
  constexpr int64_t kStatic = 8 * 1024;  // row tables beside the tiles
  if (bytes + kStatic > target.shared_memory_bytes && bytes > 96 * 1024)
    return text("its tiles take ", bytes, " bytes of shared memory");
  return {};
}

std::string why_not_hopper(const Problem& problem, const Target& target) {
  if (target.sm_version != 90) return text("target is sm_", target.sm_version);
  if (std::string why = why_not_tensor_cores(problem, target); !why.empty()) return why;
  const bool forward = problem.pass == Pass::kForward;
  if (is_paged(problem) || reads_matrices(problem)) return "its scores have a bias, a mask, pages or dropout";
  if (!forward && bends_scores(problem)) return "its scores have a softcap or slopes";
  if (!forward && !has_positive_scale(problem))
    return text("scale is ", problem.scale, ", and masked products are -inf before it");
  const int dim = hopper_dim(problem.qk_dim, problem.v_dim);
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kDo})
    if (problem.has(role))
      if (std::string why = why_no_map(problem, role); !why.empty()) return why;
  if (const auto& [align, left, right] = problem.band; left && right && *left + *right < 0)
    return "its band keeps no key";
  const HopperGradientTile gradient_tile = hopper_gradient_tile(dim);
  if (!forward && !gradient_tile.by_sums &&
      !(problem.has(Role::kDq) && problem.has(Role::kDk) && problem.has(Role::kDv)))
    return "not all of dq, dk and dv are asked for";
  const int64_t rows = forward_rows(problem, dim), keys = gradient_tile.keys;
  if (problem.kv_len == 0 || problem.q_len < rows / 2)
    return text("lengths ", problem.q_len, " and ", problem.kv_len, " do not fill a tile");
  const int64_t blocks = (forward ? tiles_of(problem.q_len, rows) * problem.q_heads
                                  : tiles_of(problem.kv_len, keys) * problem.kv_heads) *
                         problem.batch;
  if (2 * blocks < target.sm_count) return text(blocks, " tiles leave most multiprocessors idle");
  return {};
}

std::string why_not_hopper_decode(const Problem& problem, const Target& target) {
  if (target.sm_version != 90) return text("target is sm_", target.sm_version);
  if (std::string why = why_not_tensor_cores(problem, target); !why.empty()) return why;
  if (reads_matrices(problem) || bends_scores(problem)) return "its scores have more than a scale and a band";
  if (const int64_t rows = problem.q_len * problem.group(); rows > kDecodeRows)
    return text(rows, " query rows of a group exceed ", kDecodeRows);
  constexpr int kMaxDim = 128;
  if (tile_dim(problem) > kMaxDim)
    return text("head dims ", problem.qk_dim, " and ", problem.v_dim, " exceed ", kMaxDim);
  for (const Role role : {Role::kK, Role::kV})
    if (std::string why = why_no_map(problem, role); !why.empty()) return why;
  constexpr int64_t kSwizzledRows = 8;  // a tensor copy's pattern repeats after so many
  if (const int64_t rows = rows_on_a_page(problem, HopperDecodeTile::keys); rows % kSwizzledRows != 0)
    return text("pages share ", rows, " rows with a tile of ", HopperDecodeTile::keys);
  return {};
}

Recipe make_recipe(const Problem& problem, const Target& target, const SliceShape& shape) {
  Recipe recipe;
  recipe.params = params_of(problem, shape);
  if (problem.pass == Pass::kMerge) {
    recipe.steps.push_back(
        {{Family::kMergePartials}, Grid::kKvHeads, tiles_of(problem.q_len, kRowThreads / 32)});
    return recipe;
  }
  const bool tensor_cores = why_not_tensor_cores(problem, target).empty();
  if (problem.pass == Pass::kForward) {
    if (why_not_hopper(problem, target).empty())
      add_hopper_forward(problem, target, recipe);
    else if (why_not_hopper_decode(problem, target).empty())
      add_hopper_decode(problem, target, shape, recipe);
    else if (tensor_cores)
      add_tensor_forward(problem, target, shape, recipe);
    else
      add_general(problem, recipe);
    return recipe;
  }
  const int64_t delta_tile = tensor_cores ? kRowThreads / kWideLanes : kRowThreads / 32 * kRowsPerWarp;
  recipe.steps.push_back({{Family::kDeltaRows, tensor_cores ? problem.io : DataType::kF32, 0, false},
                          Grid::kKvHeads,
                          tiles_of(problem.q_len * problem.group(), delta_tile),
                          1,
                          false,
                          0});
  if (why_not_hopper(problem, target).empty())
    add_hopper_backward(problem, recipe);
  else if (tensor_cores)
    add_tensor_backward(problem, recipe);
  else
    add_general(problem, recipe);
  add_sums(problem, shape, recipe);
  return recipe;
}

}  // namespace attngraph::cuda
