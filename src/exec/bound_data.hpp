#pragma once

#include "plan/planner.hpp"

namespace attngraph {

/// Reads the lengths, offsets and page tables of one node in host memory.
///
/// Errors: kBadBinding naming the first entry that is negative, decreasing, longer than declared, beyond
///         the capacity, or a page outside the container.
Status check_bound_data(const PlanState& state, const ProgramNode& node, const Buffers& buffers);

}  // namespace attngraph
