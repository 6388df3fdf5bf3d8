#pragma once

#include <string>
#include <vector>

#include "problem/layout.hpp"
#include "problem/program.hpp"

namespace attngraph {

/// One place where a slot's tensor is used: a role of a node, or the offsets of that role.
struct SlotUse {
  int node = 0;
  Role role = Role::kQ;
  bool is_offsets = false;
};

/// What binding checks ask of a slot: the sum of all its uses.
struct SlotFacts {
  std::vector<SlotUse> uses;  ///< in node order
  int64_t footprint_bytes = 0;
  int64_t alignment = 1;  ///< bytes
  bool is_written = false;
  bool is_virtual = false;
};

/// Two bound slots, the first one written, that must not share an element.
struct SlotPair {
  int written = 0, other = 0;
};

/// By slot.
std::vector<SlotFacts> slot_facts(const Program& program);
/// Every pair of an output with another tensor, each once.
std::vector<SlotPair> pairs_to_keep_apart(const std::vector<SlotFacts>& slots);

/// Bytes that one use spans when a call brings `bounds`.
int64_t use_bytes(const Problem& problem, const SlotUse& use, const Bounds& bounds);
/// The elements that one use addresses.
struct UseLattice {
  StorageAxes axes;
  int64_t element_bytes = 1;
};
UseLattice use_lattice(const Problem& problem, const SlotUse& use, const Bounds& bounds);

/// "o (uid 4)": the caller's name, or the role's when there is none.
std::string describe_slot(const SlotFacts& facts, const SlotName& name);

}  // namespace attngraph
