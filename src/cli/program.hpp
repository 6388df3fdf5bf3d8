#pragma once

#include <span>

#include "cli/arguments.hpp"
#include "cli/io.hpp"

namespace attngraph::cli {

/// One verb of the program. `run` returns the exit code, or the message that main prints before it
/// exits with kUnreadable.
struct Verb {
  const char* name;
  const char* operands;  ///< for the usage line: "CASE..."
  const char* summary;   ///< one line
  const char* details;   ///< of --help: what it does and prints, ending in an example
  std::span<const Option> options;
  Result<int> (*run)(const Arguments& arguments, Io& io);
};

/// Verbs, each defined in the file of its name.
extern const Verb kBench, kCheck, kConvert, kExplain, kRun, kSweep;

/// Runs the verb that words[0] names; never throws.
int run_program(std::span<const char* const> words, Io& io);

}  // namespace attngraph::cli
