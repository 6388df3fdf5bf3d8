#pragma once

#include <cstdint>

namespace attngraph::test {

/// What the process was asked for so far, counted where the C library would answer: definitions in a program
/// come before those of shared libraries.
struct ProcessCalls {
  int64_t allocations = 0;  ///< of the heap, and mappings
  int64_t locks = 0, environment_reads = 0;
};
ProcessCalls process_calls();
/// Those alone that code of this program made, or the C++ library, which works for it.
ProcessCalls own_calls();

}  // namespace attngraph::test
