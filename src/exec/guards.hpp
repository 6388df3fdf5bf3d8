#pragma once

#include "plan/workspace.hpp"

namespace attngraph {

/// Writes the pattern into every workspace byte that is in no region.
void write_guards(const WorkspaceLayout& layout, std::byte* base);

/// Errors: kInternal naming the region next to the first run of changed pattern bytes.
Status find_overrun(const WorkspaceLayout& layout, const std::byte* base);

}  // namespace attngraph
