#pragma once

#include "base/checked.hpp"
#include "engine/cuda/recipe.hpp"

/// What the recipes of several families share.
namespace attngraph::cuda {

template <class To = int32_t>
To narrow(int64_t value) {
  return static_cast<To>(value);  // refusals() has bounded every size
}

inline int32_t tiles_of(int64_t rows, int64_t tile) { return narrow(ceil_div(rows, tile)); }

/// The mask grows with the position, so the last tiles have the most keys.
inline bool later_is_longer(const Problem& problem) { return problem.band.right.has_value(); }

/// After a forward that cuts its keys, the launch that joins the splits.
void add_merge_splits(const Problem& problem, Recipe& recipe);
/// After one pass the sums of dq become dq.
void add_store_dq(const Problem& problem, Recipe& recipe);

}  // namespace attngraph::cuda
