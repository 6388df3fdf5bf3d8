#pragma once

#include "engine/cuda/recipe.hpp"

namespace attngraph::cuda {

/// Adds the launches of sm_90a's own attention kernels where they take the problem; else false, and on sm_90
/// the recipe says why not.
bool add_hopper(const Problem& problem, const Target& target, const SliceShape& shape, Recipe& recipe);

}  // namespace attngraph::cuda
