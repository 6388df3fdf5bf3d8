#pragma once

#include "attngraph/execute.hpp"
#include "plan/planner.hpp"

namespace attngraph {

/// One call, as execute takes it.
struct TrialCall {
  const PointerTable& pointers;
  const CallSizes& sizes;
  Workspace workspace;
  void* stream;
};

/// The plan in the fastest of its engines' ways. Every way runs on the memory of the call; ways that need
/// more workspace than it has are left out. Waits for the device.
///
/// Errors: those of execute; kUnsupported while the stream is captured.
Result<std::shared_ptr<const PlanCore>> autotuned(const PlanState& state, const TrialCall& call);

}  // namespace attngraph
