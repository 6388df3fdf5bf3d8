#pragma once

#include "engine/cuda/recipe.hpp"

namespace attngraph::cuda {

/// Adds the launches of sm_90a's own attention kernels where they take the problem; else false, and on sm_90
/// the recipe says why not.
bool add_hopper(const Problem& problem, const Target& target, const SliceShape& shape, Recipe& recipe);

/// Adds the launch of dbias beside a backward of those kernels; else false: there is none, or dbias sums over
/// its rows or keys.
bool add_hopper_dbias(const Problem& problem, const Target& target, Recipe& recipe);

}  // namespace attngraph::cuda
