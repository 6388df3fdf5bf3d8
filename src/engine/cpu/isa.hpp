#pragma once

#include "attngraph/types.hpp"

namespace attngraph::cpu {

/// Whether this machine and its operating system run code of the instruction set.
bool machine_runs(CpuIsa isa);

/// The fastest instruction set that this machine runs.
CpuIsa best_isa();

}  // namespace attngraph::cpu
