#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attngraph/status.hpp"

namespace attngraph {

/// Bytes that are needed from one phase to another, both inclusive.
struct Block {
  int64_t bytes = 0;
  int64_t alignment = 1;  ///< a power of two
  int first = 0, last = 0;
};

/// Offsets by block, and one past the last byte used.
struct Placement {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

/// Gives every block an offset, so that blocks that live in a common phase share no byte.
///
/// Three orders of stacking are tried; when none reaches the lower bound (the fullest phase) and
/// there are at most kMaxExactBlocks blocks, an exact search follows. Equal input gives equal output.
///
/// Errors: kInvalidGraph when the bytes leave int64.
Result<Placement> place_blocks(std::span<const Block> blocks);

inline constexpr size_t kMaxExactBlocks = 8;

}  // namespace attngraph
