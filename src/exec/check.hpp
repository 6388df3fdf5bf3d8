#pragma once

#include "attngraph/execute.hpp"

namespace attngraph {

/// Everything that pointers and sizes can get wrong. Allocates only for the message of a failure.
///
/// Errors: kBadBinding naming the tensor, or the workspace, with what it has and what it needs.
Status check_bindings(const Plan& plan, const Bindings& bindings, const Workspace& workspace);

}  // namespace attngraph
