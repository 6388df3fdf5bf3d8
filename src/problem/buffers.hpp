#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "problem/problem.hpp"

namespace attngraph {

/// How much storage one call brings: at most what the problem declares.
///
/// Units: sequences, token slots (gaps included) of each ragged side, pages of each container.
struct Bounds {
  int64_t batch = 0, q_slots = 0, kv_slots = 0, k_pages = 0, v_pages = 0;

  int64_t slots(Side side) const { return side == Side::kQ ? q_slots : side == Side::kKv ? kv_slots : 0; }
};

/// What the problem declares.
Bounds declared_bounds(const Problem& problem);

/// The storage of one node in one call: pointers by role (null without a tensor) and its bounds.
struct Buffers {
  std::array<std::byte*, kNumRoles> data = {};
  std::array<const std::byte*, kNumRoles> offsets = {};
  Bounds bounds;

  std::byte* operator[](Role role) const { return data[static_cast<size_t>(role)]; }
};

}  // namespace attngraph
