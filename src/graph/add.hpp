#pragma once

#include <string>

#include "attngraph/graph.hpp"

namespace attngraph {

/// Adds the tensor under a fresh uid and returns the uid.
Uid add_tensor(Graph& graph, Tensor tensor, std::string name);

}  // namespace attngraph
