#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attngraph/plan.hpp"
#include "problem/problem.hpp"

namespace attngraph::cudnn {

/// What a gate looks at.
struct Facts {
  const Problem& problem;
  const Target& target;
  std::string_view missing = {};  ///< why this process has no cuDNN; empty when it has
};

/// What a gate found to refuse: the tensor, attribute or property of the target and its value.
struct Finding {
  std::string subject, has;
};

/// One rule of what cuDNN is asked for. The engine's answers and docs/support.md walk the same table.
struct Gate {
  std::optional<Finding> (*find)(const Facts&);
  const char* wants;   ///< what is accepted, and why
  const char* source;  ///< where the rule was read or measured
};

std::span<const Gate> gates();

/// The findings of all gates, in order of the table. A target that is no CUDA device has that one alone.
std::vector<Reason> refusals(const Facts& facts);

}  // namespace attngraph::cudnn
