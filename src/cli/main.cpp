#include <unistd.h>

#include <iostream>
#include <span>

#include "cli/program.hpp"

int main(int argc, char** argv) {
  attngraph::cli::Io io{std::cout, std::cerr, isatty(STDERR_FILENO) != 0};
  const std::span<const char* const> words(argv, static_cast<size_t>(argc));
  return attngraph::cli::run_program(words.subspan(argc > 0 ? 1 : 0), io);
}
