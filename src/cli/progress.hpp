#pragma once

#include <chrono>
#include <string>

#include "cli/io.hpp"

namespace attngraph::cli {

/// One line on a terminal that says how far long work has come; nothing in a pipe.
class Progress {
 public:
  explicit Progress(Io& io) : io_(io) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `line` in place of the one before, at most ten times a second.
  void show(const std::string& line);
  /// Takes the line away, before results are printed.
  void clear();

 private:
  Io& io_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace attngraph::cli
