#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "problem/problem.hpp"

namespace attngraph {

inline constexpr int kNoSlot = -1;

/// Which slot each tensor of one node reads or writes.
struct NodeSlots {
  std::array<int, kNumRoles> data;
  std::array<int, kNumRoles> offsets;  ///< of ragged tensors

  NodeSlots() { data.fill(kNoSlot), offsets.fill(kNoSlot); }
  friend bool operator==(const NodeSlots&, const NodeSlots&) = default;
};

struct ProgramNode {
  Problem problem;
  NodeSlots slots;
  friend bool operator==(const ProgramNode&, const ProgramNode&) = default;
};

/// A validated graph: its problems in file order and the slots through which they share tensors.
/// Slots are numbered by first use, so graphs that differ in uids and names alone compare equal.
struct Program {
  std::vector<ProgramNode> nodes;
  std::vector<bool> virtual_slots;  ///< by slot: lives in the workspace, is never bound

  int num_slots() const { return static_cast<int>(virtual_slots.size()); }
  friend bool operator==(const Program&, const Program&) = default;  // the cache key
};

/// What the caller calls a slot.
struct SlotName {
  Uid uid = 0;
  std::string name;
};

struct ValidatedGraph {
  Program program;
  std::vector<SlotName> slot_names;  ///< by slot
};

/// Checks every rule that needs no engine and no pointer.
///
/// Errors: kInvalidGraph naming the node, the tensor or attribute, its value and what it must be.
Result<ValidatedGraph> validate(const Graph& graph);

}  // namespace attngraph
