#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "cli/files.hpp"
#include "cli/program.hpp"
#include "support/catch.hpp"

namespace attngraph::cli {

/// What a run of the program left.
struct Exited {
  int code = 0;
  std::string out, err;
};

inline Exited attngraph_with(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  std::ostringstream out, err;
  Io io{out, err, false};
  Exited answer;
  answer.code = run_program(pointers, io);
  answer.out = out.str(), answer.err = err.str();
  return answer;
}

inline bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

/// A file that goes away with the test.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& content) {
    path = (std::filesystem::temp_directory_path() / "attngraph_XXXXXX").string();
    const int fd = mkstemp(path.data());
    REQUIRE(fd >= 0);
    close(fd);
    REQUIRE(write_file(path, content).ok());
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

}  // namespace attngraph::cli
