#pragma once

#include <string>

#include "attngraph/graph.hpp"

namespace attngraph {

/// Reads a graph. What depends on more than one place of the file alone, such as a missing role, is
/// left to validate(); only uids are looked up here. Keys with a default may be left out: the names,
/// strides, ragged, alignment, virtual, attributes.
///
/// Errors: kInvalidGraph with the JSON path, the value there and what is accepted.
ATTNGRAPH_API Result<Graph> parse(const std::string& json);

/// Writes a graph, keys in one fixed order, numbers exact, values that are the default left out.
/// `parse(print(g)) == g` unless g breaks a rule of parse: then the text is JSON all the same, a
/// number that is not finite is null, and parse refuses it; in names a byte that is no UTF-8 becomes
/// U+FFFD.
ATTNGRAPH_API std::string print(const Graph& graph);

}  // namespace attngraph
