#pragma once

#include "attngraph/graph.hpp"
#include "json/read.hpp"

namespace attngraph {

Status read(JsonValue value, Tensor& tensor);
Status read(JsonValue value, Node& node);

/// Reads a graph that is a whole file or a part of one; paths are those of the file.
///
/// Errors: also for a uid that two tensors have, and for one that no tensor has.
Status read(JsonValue value, Graph& graph);

inline constexpr const char* kGraphFormat = "attngraph.graph";
inline constexpr int64_t kGraphVersion = 1;

}  // namespace attngraph
