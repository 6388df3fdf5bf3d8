#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attngraph/types.hpp"

namespace attngraph::cli {

/// What a step left behind an output's pointer, up to the end of its storage.
struct OutputBits {
  DataType dtype = DataType::kF32;
  std::vector<std::byte> bytes;        ///< of the first run, with NaN poison
  std::vector<std::byte> bytes_again;  ///< of the second run, with zero poison; empty: there was none
  std::vector<bool> untouched;         ///< by element: as it was before, in all runs

  int64_t num_elems() const { return static_cast<int64_t>(untouched.size()); }
  /// Both runs gave element `index` the same bits, or left it alone.
  bool agrees(int64_t index) const;
};

}  // namespace attngraph::cli
