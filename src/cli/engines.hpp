#pragma once

#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "cli/arguments.hpp"

namespace attngraph::cli {

/// The engine that --engine names, or all of this build that run on this machine.
///
/// Errors: kInvalidGraph for a name that this build lacks, with those it has.
Result<std::vector<std::string>> chosen_engines(const Context& context, const Arguments& arguments);

}  // namespace attngraph::cli
