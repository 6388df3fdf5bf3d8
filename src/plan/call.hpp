#pragma once

#include <array>

#include "plan/planner.hpp"

namespace attngraph {

/// Regions that one call can move, on execute's stack.
inline constexpr size_t kMaxMovedRegions = 64;
using MovedRegions = std::array<Region, kMaxMovedRegions>;

/// Errors: kInvalidGraph naming a size that is declared to vary and that a node does not have.
Status check_varying(const Program& program, const Varying& varying);

/// True when the call brings all that is declared.
bool is_whole(const CallSizes& sizes);
/// Errors: kBadBinding, see Plan::workspace_bytes_for.
Status check_sizes(const PlanCore& core, const CallSizes& sizes);
/// What a call of checked sizes brings to one node.
Bounds call_bounds(const Problem& problem, const CallSizes& sizes);
/// Places the regions of such a call in `moved` and returns the workspace bytes it needs. Guarded
/// regions do not move: returns the layout's total and writes the layout's places.
int64_t place_call(const PlanCore& core, const CallSizes& sizes, MovedRegions& moved);

}  // namespace attngraph
