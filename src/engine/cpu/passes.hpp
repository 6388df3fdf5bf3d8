#pragma once

#include "engine/cpu/scratch.hpp"
#include "engine/cpu/sequence.hpp"
#include "engine/cpu/tiles.hpp"

namespace attngraph::cpu {

/// What a host plan is made from.
struct PlanInput {
  const Problem& problem;
  const Target& target;
  const SliceShape& shape;
  Executor& executor;
  WorkspaceLayout& workspace;
};

Result<std::unique_ptr<const EnginePlan>> plan_forward(const PlanInput& input);
Result<std::unique_ptr<const EnginePlan>> plan_backward(const PlanInput& input);
Result<std::unique_ptr<const EnginePlan>> plan_merge(const PlanInput& input);

/// Matrix products for a problem: pairs of bfloat16 where the kernels have them and every operand is
/// bfloat16, else floats.
const Products& products_for(const Problem& problem, const Kernels& kernels);

/// Whether this machine runs what the plan was made for.
///
/// Errors: kBackend naming both instruction sets.
Status check_isa(CpuIsa planned);

}  // namespace attngraph::cpu
