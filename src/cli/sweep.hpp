#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/io.hpp"
#include "cli/random_problem.hpp"
#include "cli/step_run.hpp"

namespace attngraph::cli {

struct SweepOptions {
  std::vector<std::string> engines;
  int64_t first_seed = 1;
  std::optional<int64_t> count, seconds;  ///< the first that is reached ends the sweep
  ProblemSize size = ProblemSize::kSmall;
  ProblemRows rows = ProblemRows::kAny;
  bool only_taken = false;              ///< problems that an engine refuses before it plans do not count
  std::optional<Role> needed;           ///< problems without a tensor of this role do not count
  int64_t most_passed_over = 100'000;   ///< in a row
  bool shrinks = false;                 ///< simplify a failing problem as long as it fails
  std::optional<std::string> save_dir;  ///< where failing cases go; absent: the first is printed
};

struct SweepCounts {
  int64_t problems = 0, passed_over = 0, runs = 0, refused = 0, failed = 0;
};

/// Compares the engines with the reference on one random problem per seed and prints each failure.
///
/// Errors: those of write_file(); kUnsupported when next to no problem counts.
Result<SweepCounts> sweep(const Library& library, const SweepOptions& options, Io& io);

}  // namespace attngraph::cli
