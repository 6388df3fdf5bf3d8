#pragma once

#include <string>

#include "attngraph/graph.hpp"

namespace attngraph {

/// Reads a graph. `parse(print(g)) == g` for every graph that can be printed.
///
/// Errors: kInvalidGraph with the JSON path, the value there and what is accepted.
ATTNGRAPH_API Result<Graph> parse(const std::string& json);

/// Writes a graph, keys in one fixed order, numbers exact.
ATTNGRAPH_API std::string print(const Graph& graph);

}  // namespace attngraph
