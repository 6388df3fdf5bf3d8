#pragma once

#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "cli/arguments.hpp"

namespace attngraph::cli {

/// The engines that --engine names, or all of this build.
///
/// Errors: kInvalidGraph for a name that this build lacks, with those it has.
Result<std::vector<std::string>> chosen_engines(const Context& context, const Arguments& arguments);

}  // namespace attngraph::cli
