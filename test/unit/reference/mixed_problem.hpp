#pragma once

#include <random>
#include <vector>

#include "support/node_storage.hpp"
#include "support/problems.hpp"

namespace attngraph::test {

/// A small forward problem in which every feature is drawn, and its inputs in float32.
struct MixedProblem {
  Problem forward;
  NodeStorage inputs;
  std::vector<Role> gradients;  ///< all that its backward can give
};

MixedProblem mixed_problem(std::mt19937& random);

/// Multiples of 2^-6 in about [-2, 2], so that small binary steps stay exact in float32.
std::vector<double> grid_values(std::mt19937& random, int64_t count);

}  // namespace attngraph::test
