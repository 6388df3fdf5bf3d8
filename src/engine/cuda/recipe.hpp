#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/instances.hpp"
#include "engine/cuda/params.hpp"
#include "plan/engine.hpp"

namespace attngraph::cuda {

/// What a launch's blocks are spread over, besides the sequences of its slice.
enum class Grid : uint8_t {
  kKvHeads,              ///< row tiles x splits x kv heads
  kQHeads,               ///< row tiles x query heads
  kBias,                 ///< tiles of dbias, all of them in every slice
  kHeads,                ///< query heads; the block walks the sequences
  kMultiprocessors,      ///< one a multiprocessor; each takes row tiles of query heads in turn
  kKvMultiprocessors,    ///< the same of kv heads
  kBiasMultiprocessors,  ///< the same of tiles of dbias
  kSums,                 ///< a fixed number of blocks, after the last slice only
};

/// One launch.
struct Step {
  InstanceKey kernel;
  Grid grid = Grid::kKvHeads;
  int32_t row_tiles = 1, splits = 1;
  bool from_last = false;  ///< row tiles: where those are the longest
  int64_t shared_bytes = 0;
  int32_t cluster = 1;  ///< neighbouring splits whose blocks join their results themselves
  int32_t heads_together = 1, sequences_together = 0;  ///< of those taken in turn, see HopperPlace
};

/// Everything that a plan decides: a pure function of the problem, the target and the slice.
struct Recipe {
  std::vector<Step> steps;
  Params params;                ///< without pointers and slice
  int32_t splits = 1;           ///< of the forward's keys, as many as a kernel must join
  int32_t multiprocessors = 0;  ///< that take row tiles in turn
  int32_t key_box_rows = 0;     ///< see HopperCopies
  bool bias_in_chunks = false, mask_in_chunks = false;  ///< the same
  int32_t dq_columns = 0;     ///< of dq as all keys' blocks add it up in float32; 0: they do not
  bool dq_in_turn = false;    ///< in a fixed order
  bool keeps_dbias = false;   ///< slices cut an axis that dbias sums over, or dbias itself
  std::string why_no_hopper;  ///< on sm_90: why its own kernels do not take the problem; empty: they do
};

Recipe make_recipe(const Problem& problem, const Target& target, const SliceShape& shape);

}  // namespace attngraph::cuda
