#pragma once

#include <string>

#include "attngraph/graph.hpp"
#include "cli/arguments.hpp"

namespace attngraph::cli {

/// The bytes of a file.
///
/// Errors: kInvalidGraph naming the path and the reason (absent, a directory, not readable).
Result<std::string> read_file(const std::string& path);

/// The graph file that is a verb's only operand.
///
/// Errors: kInvalidGraph naming the file and what parse() says.
Result<Graph> read_graph(const Arguments& arguments);

/// Writes a file as a whole: under a temporary name beside it, then renamed, so that no reader ever
/// sees a part of it.
///
/// Errors: kBackend naming the path, the call and the system's text; the temporary file is removed.
Status write_file(const std::string& path, const std::string& content);

}  // namespace attngraph::cli
