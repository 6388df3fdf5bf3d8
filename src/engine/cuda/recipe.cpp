#include "engine/cuda/recipe.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/message.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/float_tiles.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/splits.hpp"
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

/// Tiles of a forward over the packed query rows of kv heads.
struct ForwardTiles {
  int64_t rows, keys, shared_bytes;
};
void add_packed_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        const InstanceKey& key, const ForwardTiles& tiles, Recipe& recipe) {
  const int32_t row_tiles = tiles_of(problem.q_len * problem.group(), tiles.rows);
  const int64_t slots = int64_t{target.sm_count} * std::min(blocks_per_sm(target, tiles.shared_bytes), 2);
  constexpr int64_t kMergedColumns = 4;  // the merge moves so many at once
  if (problem.v_dim % kMergedColumns == 0)
    recipe.splits =
        key_splits(shape.batch * shape.kv_heads * row_tiles, slots, tiles_of(problem.kv_len, tiles.keys));
  recipe.steps.push_back(
      {key, Grid::kKvHeads, row_tiles, recipe.splits, later_is_longer(problem), tiles.shared_bytes});
  add_merge_splits(problem, recipe);
}

void add_tensor_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = tile_dim(problem);
  if (problem.q_len * problem.group() <= kDecodeRows) {
    const TensorTile tile = decode_tile(dim);
    return add_packed_forward(problem, target, shape, {Family::kTensorDecode, problem.io, dim, true},
                              {kDecodeRows, tile.columns, decode_shared_bytes(tile)}, recipe);
  }
  const TensorTile tile = forward_tile(dim);
  add_packed_forward(problem, target, shape, {Family::kTensorForward, problem.io, dim, has_extras(problem)},
                     {tile.rows(), tile.columns, forward_shared_bytes(tile)}, recipe);
}

void add_float_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                       Recipe& recipe) {
  const int dim = float_dim(problem.qk_dim, problem.v_dim);
  const FloatTile tile = float_forward_tile(dim);
  add_packed_forward(problem, target, shape, {Family::kFloatForward, problem.io, dim, has_extras(problem)},
                     {tile.rows, tile.columns, float_forward_shared_bytes(tile)}, recipe);
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

/// Heads of a section, see HopperPlace, so that there are as few of equal size as have at most `most`.
int64_t equal_sections(int64_t heads, int64_t most) {
  const int64_t sections = (heads + most - 1) / most;
  return (heads + sections - 1) / sections;
}

/// Of packed ones on average.
int64_t keys_of_sequence(const Problem& problem) {
  if (!problem[Role::kK].ragged) return problem.kv_len;
  return std::clamp<int64_t>(problem.kv_slots / problem.batch, 1, problem.kv_len);
}

/// Query heads of a section of a forward; behind a band of equal sizes, so that blocks get equal work.
int32_t heads_together(const Problem& problem, const Target& target, const SliceShape& shape) {
  const bool lengths_differ = later_is_longer(problem);
  const int64_t key_bytes = keys_of_sequence(problem) * 2 * (problem.qk_dim + problem.v_dim);
  // So much of L2 for the keys in use; the rest holds what passes by.
  const int64_t bytes = lengths_differ ? target.l2_bytes * 2 / 3 : target.l2_bytes / 2;
  const int64_t most = std::max<int64_t>(bytes / key_bytes, 1), all = shape.batch * shape.kv_heads;
  return narrow((lengths_differ ? equal_sections(all, most) : std::min(most, all)) * problem.group());
}

/// Kv heads of a section of a wide backward, of which a tile reads `rows` rows each. Without a right side
/// one: its tiles fill the device, and more would only take more of L2, on an H200 3 % of the time at 4,096
/// tokens. With one equal sections of what fits two thirds of L2, rounded down to a power of two, as its
/// multiples more often share out evenly.
int64_t wide_heads_together(const Problem& problem, const Target& target, const SliceShape& shape,
                            int64_t rows) {
  if (!later_is_longer(problem)) return 1;
  const int64_t fit = target.l2_bytes * 2 / 3 / (rows * 2 * (problem.qk_dim + problem.v_dim));
  const auto most = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(fit, 1)));
  return equal_sections(shape.batch * shape.kv_heads, static_cast<int64_t>(most));
}

bool has_lengths(const Problem& problem) {
  return problem.has(Role::kSeqLenQ) || problem.has(Role::kCuSeqLenQ) || problem.has(Role::kSeqLenKv) ||
         problem.has(Role::kCuSeqLenKv);
}

/// A section of sequences that differ in length, see HopperLevels. Sections of fewer tiles than there are
/// multiprocessors stay away: each block looks at every section, whether it has tiles there or not.
void divide_by_sequence(int64_t heads, int64_t sm_count, Step& step) {
  constexpr int64_t kMost = 32;  // a lane each
  const int64_t sequences = std::clamp<int64_t>(step.heads_together / heads, 1, kMost);
  const int64_t together = std::min<int64_t>(step.heads_together, heads);
  if (sequences == kMost && sequences * together * step.row_tiles < sm_count) return;
  step.sequences_together = narrow(sequences), step.heads_together = narrow(together);
}

void add_hopper_forward(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = hopper_tile_dim(problem);
  const Scores scores = hopper_scores(problem);
  const HopperTile tile = hopper_forward_tile(dim, forward_rows(problem, dim), scores);
  recipe.multiprocessors = target.sm_count;
  recipe.key_box_rows = narrow(rows_on_a_page(problem, tile.keys));
  recipe.steps.push_back({{Family::kHopperForward, problem.io, dim, scores != Scores::kPlain, tile.rows(),
                           scores == Scores::kRead},
                          Grid::kMultiprocessors,
                          tiles_of(problem.q_len, tile.rows()),
                          1,
                          later_is_longer(problem),
                          hopper_shared_bytes(tile),
                          1,
                          heads_together(problem, target, shape)});
  if (has_lengths(problem))
    divide_by_sequence(shape.kv_heads * problem.group(), target.sm_count, recipe.steps.back());
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
void add_hopper_dq_dkdv(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = hopper_dim(problem.qk_dim, problem.v_dim);
  recipe.multiprocessors = target.sm_count;
  if (problem.has(Role::kDk) || problem.has(Role::kDv))
    recipe.steps.push_back(
        {{Family::kHopperDkdv, problem.io, dim, masks_scores(problem)},
         Grid::kKvMultiprocessors,
         tiles_of(problem.kv_len, HopperDkdvTile::keys),
         1,
         later_is_longer(problem),
         hopper_shared_bytes(hopper_dkdv_tile(dim, masks_scores(problem))),
         1,
         narrow(wide_heads_together(problem, target, shape, problem.q_len * problem.group()))});
  if (problem.has(Role::kDq))
    recipe.steps.push_back(
        {{Family::kHopperDq, problem.io, dim, masks_scores(problem)},
         Grid::kMultiprocessors,
         tiles_of(problem.q_len, HopperDqTile::rows),
         1,
         later_is_longer(problem),
         hopper_shared_bytes(hopper_dq_tile(dim)),
         1,
         narrow(wide_heads_together(problem, target, shape, problem.kv_len) * problem.group())});
}

/// Kv heads whose tiles of keys blocks of a one-pass backward take alternately. In turn, a tile adds to each
/// block of dq after the one taken before it, a step behind it at least. In the order of one head after the
/// other the tiles of a head take multiprocessors that several heads leave at once, and each waits until it
/// is as many steps behind: on an H200, 4,096 tokens, 9 % of the time at dim 128, a quarter at 64. Behind a
/// causal band tiles begin where their own keys do, which keeps them apart. Groups were not measured.
int32_t gradient_heads_together(const Problem& problem, const Target& target, const SliceShape& shape) {
  if (!adds_dq_in_turn(problem) || later_is_longer(problem) || problem.group() > 1) return 1;
  const int64_t row_bytes = 2 * (problem.qk_dim + problem.v_dim) + 4 * problem.qk_dim;  // q, do, sums of dq
  const int64_t most = target.l2_bytes / 2 / (problem.q_len * row_bytes);
  return narrow(std::clamp<int64_t>(most, 1, shape.batch * shape.kv_heads));
}

void add_hopper_backward(const Problem& problem, const Target& target, const SliceShape& shape,
                         Recipe& recipe) {
  const int dim = hopper_tile_dim(problem);
  if (is_wide(dim)) return add_hopper_dq_dkdv(problem, target, shape, recipe);
  const HopperGradientTile tile = hopper_gradient_tile(dim);
  recipe.dq_columns = dim;
  recipe.dq_in_turn = adds_dq_in_turn(problem);
  const Scores scores = hopper_scores(problem);
  recipe.steps.push_back(
      {{Family::kHopperBackward, problem.io, dim, scores != Scores::kPlain, 0, scores == Scores::kRead},
       Grid::kKvHeads,
       tiles_of(problem.kv_len, tile.keys),
       1,
       false,
       hopper_shared_bytes(tile, scores),
       1,
       gradient_heads_together(problem, target, shape)});
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

/// Of few query rows, why not decode; else of what takes many.
std::string why_not_hopper_families(const Problem& problem, const Target& target) {
  std::string why = why_not_hopper(problem, target);
  if (why.empty() || problem.pass != Pass::kForward || problem.q_len * problem.group() > kDecodeRows)
    return why;
  return why_not_hopper_decode(problem, target);
}

}  // namespace

Recipe make_recipe(const Problem& problem, const Target& target, const SliceShape& shape) {
  Recipe recipe;
  recipe.params = params_of(problem, shape);
  recipe.bias_in_chunks = is_in_chunks(problem[Role::kBias]);
  recipe.mask_in_chunks = is_in_chunks(problem[Role::kMask]);
  if (problem.pass == Pass::kMerge) {
    recipe.steps.push_back(
        {{Family::kMergePartials}, Grid::kKvHeads, tiles_of(problem.q_len, kRowThreads / 32)});
    return recipe;
  }
  const bool tensor_cores = why_not_tensor_cores(problem, target).empty();
  const std::string why_no_hopper = why_not_hopper_families(problem, target);
  if (target.sm_version == 90) recipe.why_no_hopper = why_no_hopper;
  if (problem.pass == Pass::kForward) {
    if (why_not_hopper(problem, target).empty())
      add_hopper_forward(problem, target, shape, recipe);
    else if (why_no_hopper.empty())
      add_hopper_decode(problem, target, shape, recipe);
    else if (tensor_cores)
      add_tensor_forward(problem, target, shape, recipe);
    else if (why_not_float(problem, target).empty())
      add_float_forward(problem, target, shape, recipe);
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
  if (why_no_hopper.empty())
    add_hopper_backward(problem, target, shape, recipe);
  else if (tensor_cores)
    add_tensor_backward(problem, recipe);
  else if (why_not_float(problem, target).empty())
    add_float_backward(problem, recipe);
  else
    add_general(problem, recipe);
  add_sums(problem, shape, recipe);
  return recipe;
}

}  // namespace attngraph::cuda
