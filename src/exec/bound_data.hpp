#pragma once

#include "plan/planner.hpp"

namespace attngraph {

/// Looks at the lengths, offsets and page tables of one node, where they lie; in device memory on `stream`,
/// which it waits for, with `scratch` for one WrongEntry.
///
/// Errors: kBadBinding naming the first entry that is negative, decreasing, longer than declared, beyond
///         the capacity, or a page outside the container; kUnsupported while `stream` is captured.
Status check_bound_data(const PlanState& state, const ProgramNode& node, const Buffers& buffers,
                        std::byte* scratch, void* stream);

}  // namespace attngraph
