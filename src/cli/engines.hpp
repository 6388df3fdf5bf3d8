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

inline constexpr Option kMultiprocessors{
    "--multiprocessors", "N",
    "plan for a CUDA device of N: few give small problems the kernels of large ones"};

/// The number that --multiprocessors gives, or 0.
///
/// Errors: kInvalidGraph for what is no number from 1 on.
Result<int64_t> chosen_multiprocessors(const Arguments& arguments);

}  // namespace attngraph::cli
