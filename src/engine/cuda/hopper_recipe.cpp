#include "engine/cuda/hopper_recipe.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/cuda/families.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/splits.hpp"
#include "engine/cuda/steps.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

/// Heads of a section, see HopperPlace, so that there are as few of equal size as have at most `most`.
int64_t equal_sections(int64_t heads, int64_t most) {
  const int64_t sections = ceil_div(heads, most);
  return ceil_div(heads, sections);
}

/// Of packed ones on average.
int64_t keys_of_sequence(const Problem& problem) {
  if (!problem[Role::kK].ragged) return problem.kv_len;
  return std::clamp<int64_t>(problem.kv_slots / problem.batch, 1, problem.kv_len);
}

bool has_lengths(const Problem& problem) {
  return problem.has(Role::kSeqLenQ) || problem.has(Role::kCuSeqLenQ) || problem.has(Role::kSeqLenKv) ||
         problem.has(Role::kCuSeqLenKv);
}

/// Query heads of a section of a forward; behind a band of equal sizes, so that blocks get equal work. Where
/// neither a band nor lengths make tiles differ and heads are not wide, those of one kv head: on an H200 3 %
/// faster at 512 to 4,096 tokens than as many as fit L2.
int32_t heads_together(const Problem& problem, const Target& target, const SliceShape& shape) {
  const bool lengths_differ = later_is_longer(problem);
  if (!lengths_differ && !problem.band.left && !has_lengths(problem) && !is_wide(hopper_tile_dim(problem)))
    return narrow(problem.group());
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
  const HopperTile tile = hopper_forward_tile(dim, scores);
  recipe.multiprocessors = target.sm_count;
  recipe.key_box_rows = narrow(rows_on_a_page(problem, tile.keys));
  recipe.steps.push_back({.kernel = {.family = Family::kHopperForward,
                                     .io = problem.io,
                                     .size = dim,
                                     .extras = scores != Scores::kPlain,
                                     .reads = scores == Scores::kRead},
                          .grid = Grid::kMultiprocessors,
                          .row_tiles = tiles_of(problem.q_len, tile.rows),
                          .from_last = later_is_longer(problem),
                          .shared_bytes = hopper_shared_bytes(tile),
                          .heads_together = heads_together(problem, target, shape)});
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
  recipe.steps.push_back({.kernel = {.family = Family::kHopperDecode, .io = problem.io, .size = dim},
                          .grid = Grid::kKvHeads,
                          .splits = parts.cluster * parts.clusters,
                          .shared_bytes = hopper_shared_bytes(tile),
                          .cluster = parts.cluster});
  add_merge_splits(problem, recipe);
}

/// Wide heads: seven products instead of five, and nothing to add up between blocks.
void add_hopper_dq_dkdv(const Problem& problem, const Target& target, const SliceShape& shape,
                        Recipe& recipe) {
  const int dim = hopper_tile_dim(problem);
  recipe.multiprocessors = target.sm_count;
  const bool extras = masks_scores(problem), from_last = later_is_longer(problem);
  const auto together = [&](int64_t rows) { return wide_heads_together(problem, target, shape, rows); };
  if (problem.has(Role::kDk) || problem.has(Role::kDv))
    recipe.steps.push_back(
        {.kernel = {.family = Family::kHopperDkdv, .io = problem.io, .size = dim, .extras = extras},
         .grid = Grid::kKvMultiprocessors,
         .row_tiles = tiles_of(problem.kv_len, HopperDkdvTile::keys),
         .from_last = from_last,
         .shared_bytes = hopper_shared_bytes(hopper_dkdv_tile(dim, extras)),
         .heads_together = narrow(together(problem.q_len * problem.group()))});
  if (problem.has(Role::kDq))
    recipe.steps.push_back(
        {.kernel = {.family = Family::kHopperDq, .io = problem.io, .size = dim, .extras = extras},
         .grid = Grid::kMultiprocessors,
         .row_tiles = tiles_of(problem.q_len, HopperDqTile::rows),
         .from_last = from_last,
         .shared_bytes = hopper_shared_bytes(hopper_dq_tile(dim)),
         .heads_together = narrow(together(problem.kv_len) * problem.group())});
}

/// Where asked, and of so few keys that sums which need no zeroing save more than turns cost: on an H200 7 %
/// of 512 tokens and 5 % of 1,024, nothing of 4,096.
bool adds_dq_in_turn(const Problem& problem) {
  constexpr int64_t kFewKeys = 1024;
  return problem.deterministic || problem.kv_len <= kFewKeys;
}

/// Kv heads whose tiles of keys the blocks of a one-pass backward take alternately, a power of two, as its
/// multiples more often share out evenly.
///
/// In any order as many as run at once: the longest tiles of all of them then start first. Head by head, that
/// of the last head starts when most others end: on an H200 6 % of the time of 4,096 causal tokens, 7 % of
/// 8,192 with groups of 4 heads.
///
/// In turn a tile adds to each block of dq after the one taken before it, a step behind it at least: so many
/// that of a head about half as many tiles run at once as one has steps. With a head at a time 1,024 tokens
/// lose 12 %. Behind a causal band tiles begin where their own keys do, which keeps them apart.
int32_t gradient_heads_together(const Problem& problem, const Target& target, const SliceShape& shape) {
  const HopperGradientTile tile = hopper_gradient_tile(hopper_tile_dim(problem));
  const int64_t sms = target.sm_count, steps = tiles_of(problem.q_len, tile.q_rows) * problem.group();
  const bool in_turn = adds_dq_in_turn(problem);
  if (in_turn && later_is_longer(problem)) return 1;
  const int64_t most = in_turn ? 2 * sms / std::max<int64_t>(steps, 1)
                               : sms / std::max(tiles_of(problem.kv_len, tile.keys), 1);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  return narrow(std::clamp<int64_t>(power, 1, shape.batch * shape.kv_heads));
}

void add_hopper_backward(const Problem& problem, const Target& target, const SliceShape& shape,
                         Recipe& recipe) {
  const int dim = hopper_tile_dim(problem);
  if (is_wide(dim)) return add_hopper_dq_dkdv(problem, target, shape, recipe);
  const Scores scores = hopper_scores(problem);
  const HopperGradientTile tile = hopper_gradient_tile(dim, scores);
  recipe.dq_columns = dim;
  recipe.dq_in_turn = adds_dq_in_turn(problem);
  recipe.steps.push_back({.kernel = {.family = Family::kHopperBackward,
                                     .io = problem.io,
                                     .size = dim,
                                     .extras = scores != Scores::kPlain,
                                     .reads = scores == Scores::kRead},
                          .grid = Grid::kKvHeads,
                          .row_tiles = tiles_of(problem.kv_len, tile.keys),
                          .shared_bytes = hopper_shared_bytes(tile, scores),
                          .heads_together = gradient_heads_together(problem, target, shape)});
  add_store_dq(problem, recipe);
}

}  // namespace

bool add_hopper(const Problem& problem, const Target& target, const SliceShape& shape, Recipe& recipe) {
  recipe.bias_in_chunks = is_in_chunks(problem[Role::kBias]);
  recipe.mask_in_chunks = is_in_chunks(problem[Role::kMask]);
  const bool forward = problem.pass == Pass::kForward;
  std::string why = why_not_hopper(problem, target);
  if (why.empty()) {
    forward ? add_hopper_forward(problem, target, shape, recipe)
            : add_hopper_backward(problem, target, shape, recipe);
    return true;
  }
  if (forward && problem.q_len * problem.group() <= kDecodeRows) {
    why = why_not_hopper_decode(problem, target);
    if (why.empty()) {
      add_hopper_decode(problem, target, shape, recipe);
      return true;
    }
  }
  if (target.sm_version == 90) recipe.why_no_hopper = std::move(why);
  return false;
}

bool add_hopper_dbias(const Problem& problem, const Target& target, Recipe& recipe) {
  if (!adds_dbias_on_hopper(problem, target)) return false;
  const int dim = hopper_tile_dim(problem);
  recipe.multiprocessors = target.sm_count;
  recipe.steps.push_back({.kernel = {.family = Family::kHopperDbias, .io = problem.io, .size = dim},
                          .grid = Grid::kBiasMultiprocessors,
                          .shared_bytes = hopper_shared_bytes(hopper_dbias_tile(dim))});
  return true;
}

}  // namespace attngraph::cuda
