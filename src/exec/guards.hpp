#pragma once

#include "attngraph/types.hpp"
#include "plan/workspace.hpp"

namespace attngraph {

/// Writes the pattern into every workspace byte that is in no region; on `stream` in device memory.
Status write_guards(const WorkspaceLayout& layout, MemoryKind memory, std::byte* base, void* stream);

/// Errors: kInternal naming the region next to the first run of changed pattern bytes.
Status find_overrun(const WorkspaceLayout& layout, MemoryKind memory, const std::byte* base);

}  // namespace attngraph
