#pragma once

#include "attngraph/graph.hpp"
#include "base/json_writer.hpp"

namespace attngraph {

/// Writes a graph as a whole file or as a part of one, as print() does.
void write(JsonWriter& writer, const Graph& graph);

}  // namespace attngraph
