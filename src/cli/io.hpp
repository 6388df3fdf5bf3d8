#pragma once

#include <ostream>

namespace attngraph::cli {

/// Where a verb writes: results to `out`, progress and messages to `err`.
struct Io {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  ///< progress is shown only then
};

/// What the program returns to the shell.
enum Exit : int { kSuccess = 0, kFailed = 1, kUnreadable = 2 };

}  // namespace attngraph::cli
