#include "engine/cuda/recipe.hpp"

#include <algorithm>
#include <array>

#include "base/message.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/float_tiles.hpp"
#include "engine/cuda/hopper_recipe.hpp"
#include "engine/cuda/row_tiles.hpp"
#include "engine/cuda/splits.hpp"
#include "engine/cuda/steps.hpp"
#include "engine/cuda/tiles.hpp"
#include "problem/dropout.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

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
/// written: their sequences share no slot, while those of other inputs may (contract section 2). Rows of no
/// elements do not tell where they are.
int32_t slot_role(const Problem& problem) {
  if (problem.has(Role::kDq) && (!problem[Role::kDq].ragged || problem.qk_dim == 0)) return -1;
  for (const Role role : {Role::kDq, Role::kStats, Role::kO})
    if (problem[role].present && problem[role].ragged && dim(problem[role]) > 0)
      return static_cast<int32_t>(role);
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

int32_t blocks_per_sm(const Target& target, int64_t shared_bytes) {
  return narrow(std::max<int64_t>(target.shared_memory_bytes / std::max<int64_t>(shared_bytes, 1), 1));
}

/// A kernel for the packed query rows of kv heads, with its tiles.
struct PackedForward {
  InstanceKey kernel;
  int64_t rows, keys, shared_bytes;
};
void add_packed_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        const PackedForward& forward, Recipe& recipe) {
  const int32_t row_tiles = tiles_of(problem.q_len * problem.group(), forward.rows);
  const int64_t slots = int64_t{target.sm_count} * std::min(blocks_per_sm(target, forward.shared_bytes), 2);
  constexpr int64_t kMergedColumns = 4;  // the merge moves so many at once
  if (problem.v_dim % kMergedColumns == 0)
    recipe.splits =
        key_splits(shape.batch * shape.kv_heads * row_tiles, slots, tiles_of(problem.kv_len, forward.keys));
  recipe.steps.push_back({forward.kernel, Grid::kKvHeads, row_tiles, recipe.splits, later_is_longer(problem),
                          forward.shared_bytes});
  add_merge_splits(problem, recipe);
}

void add_tensor_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = tile_dim(problem);
  if (problem.q_len * problem.group() <= kDecodeRows) {
    const TensorTile tile = decode_tile(dim);
    return add_packed_forward(problem, target, shape,
                              {{Family::kTensorDecode, problem.io, dim, true},
                               kDecodeRows,
                               tile.columns,
                               decode_shared_bytes(tile)},
                              recipe);
  }
  const TensorTile tile = forward_tile(dim);
  add_packed_forward(problem, target, shape,
                     {{Family::kTensorForward, problem.io, dim, has_extras(problem)},
                      tile.rows(),
                      tile.columns,
                      forward_shared_bytes(tile)},
                     recipe);
}

void add_float_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                       Recipe& recipe) {
  const int dim = float_dim(problem.qk_dim, problem.v_dim);
  const FloatTile tile = float_forward_tile(dim);
  add_packed_forward(problem, target, shape,
                     {{Family::kFloatForward, problem.io, dim, has_extras(problem)},
                      tile.rows,
                      tile.columns,
                      float_forward_shared_bytes(tile)},
                     recipe);
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

void add_float_backward(const Problem& problem, Recipe& recipe) {
  const int dim = float_dim(problem.qk_dim, problem.v_dim);
  const FloatTile tile = float_backward_tile(dim);
  recipe.dq_columns = dim;
  recipe.steps.push_back({{Family::kFloatBackward, problem.io, dim, false},
                          Grid::kKvHeads,
                          tiles_of(problem.kv_len, tile.rows),
                          1,
                          false,
                          float_backward_shared_bytes(tile)});
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

void add_general_dbias(const Problem& problem, Recipe& recipe) {
  recipe.steps.push_back({{Family::kGeneralDbias, DataType::kF32, general_tile_of(problem), true},
                          Grid::kBias,
                          1,
                          1,
                          false,
                          general_shared_bytes(problem)});
}

/// What is summed over all slices; dbias is, where a launch before adds it up.
void add_sums(const Problem& problem, const SliceShape& shape, Recipe& recipe) {
  recipe.keeps_dbias =
      problem.has(Role::kDbias) && (shape.batch < problem.batch || shape.kv_heads < problem.kv_heads);
  const bool head_sums =
      problem.q_heads > 0 && (problem.has(Role::kDsink) || problem.has(Role::kDalibiSlopes));
  if (head_sums) recipe.steps.push_back({{Family::kHeadSums}, Grid::kHeads});
  if (head_sums || recipe.keeps_dbias) recipe.steps.push_back({{Family::kStoreSums}, Grid::kSums});
}

/// Without query heads keys have gradients of 0, as without query rows, and nothing else is written.
Recipe recipe_without_heads(Problem problem, const SliceShape& shape) {
  problem.q_len = 0;
  Recipe recipe;
  recipe.params = params_of(problem, shape);
  add_general(problem, recipe);
  if (problem.has(Role::kDbias)) add_general_dbias(problem, recipe);
  add_sums(problem, shape, recipe);
  return recipe;
}

}  // namespace

void add_merge_splits(const Problem& problem, Recipe& recipe) {
  if (recipe.splits > 1)
    recipe.steps.push_back({{Family::kMergeSplits},
                            Grid::kKvHeads,
                            tiles_of(problem.q_len * problem.group(), kRowThreads / 32)});
}

void add_store_dq(const Problem& problem, Recipe& recipe) {
  recipe.steps.push_back({{Family::kStoreDq, problem.io, 0, false},
                          Grid::kKvHeads,
                          tiles_of(problem.q_len * problem.group(), kRowThreads / kWideLanes)});
}

Recipe make_recipe(const Problem& problem, const Target& target, const SliceShape& shape) {
  if (problem.q_heads == 0) return recipe_without_heads(problem, shape);
  Recipe recipe;
  recipe.params = params_of(problem, shape);
  if (problem.pass == Pass::kMerge) {
    recipe.steps.push_back(
        {{Family::kMergePartials}, Grid::kKvHeads, tiles_of(problem.q_len, kRowThreads / 32)});
    return recipe;
  }
  const bool tensor_cores = why_not_tensor_cores(problem, target).empty();
  if (problem.pass == Pass::kForward) {
    if (add_hopper(problem, target, shape, recipe)) return recipe;
    if (tensor_cores)
      add_tensor_forward(problem, target, shape, recipe);
    else if (why_not_float(problem, target).empty())
      add_float_forward(problem, target, shape, recipe);
    else
      add_general(problem, recipe);
    return recipe;
  }
  const int64_t delta_tile = tensor_cores ? kDeltaTileRows : kRowThreads / 32 * kRowsPerWarp;
  recipe.steps.push_back({{Family::kDeltaRows, tensor_cores ? problem.io : DataType::kF32, 0, false},
                          Grid::kKvHeads,
                          tiles_of(problem.q_len * problem.group(), delta_tile),
                          1,
                          false,
                          0});
  if (!add_hopper(problem, target, shape, recipe)) {
    if (tensor_cores)
      add_tensor_backward(problem, recipe);
    else if (why_not_float(problem, target).empty())
      add_float_backward(problem, recipe);
    else
      add_general(problem, recipe);
  }
  if (problem.has(Role::kDbias) && !add_hopper_dbias(problem, target, recipe))
    add_general_dbias(problem, recipe);
  add_sums(problem, shape, recipe);
  return recipe;
}

}  // namespace attngraph::cuda
