#pragma once

#include "attngraph/execute.hpp"

namespace attngraph {

/// Everything that tensors' pointers can get wrong in a call of checked sizes, and the same of the
/// workspace, for pointers that are checked. Both allocate only for the message of a failure.
///
/// Errors: kBadBinding naming the tensor, or the workspace, with what it has and what it needs.
Status check_bindings(const PlanState& state, const PointerTable& pointers, const CallSizes& sizes);
Status check_workspace(const PlanState& state, const PointerTable& pointers, const CallSizes& sizes,
                       const Workspace& workspace, int64_t needed_bytes);

}  // namespace attngraph
