#include "plan/slots.hpp"

#include <algorithm>

#include "base/message.hpp"

namespace attngraph {
namespace {

void add_use(std::vector<SlotFacts>& slots, int slot, const SlotUse& use, const Problem& problem) {
  if (slot == kNoSlot) return;
  SlotFacts& facts = slots[static_cast<size_t>(slot)];
  const Operand& operand = problem[use.role];
  facts.uses.push_back(use);
  facts.footprint_bytes = std::max(facts.footprint_bytes, use_bytes(problem, use, declared_bounds(problem)));
  facts.alignment = std::max(facts.alignment, use.is_offsets ? operand.offsets_alignment : operand.alignment);
  facts.is_written |= !use.is_offsets && is_output(problem, use.role);
}

}  // namespace

std::vector<SlotFacts> slot_facts(const Program& program) {
  std::vector<SlotFacts> slots(static_cast<size_t>(program.num_slots()));
  for (size_t i = 0; i < slots.size(); ++i) slots[i].is_virtual = program.virtual_slots[i];
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const ProgramNode& node = program.nodes[n];
    for (size_t i = 0; i < kNumRoles; ++i) {
      SlotUse use{static_cast<int>(n), static_cast<Role>(i), false};
      add_use(slots, node.slots.data[i], use, node.problem);
      use.is_offsets = true;
      add_use(slots, node.slots.offsets[i], use, node.problem);
    }
  }
  return slots;
}

std::vector<SlotPair> pairs_to_keep_apart(const std::vector<SlotFacts>& slots) {
  std::vector<SlotPair> pairs;
  const int count = static_cast<int>(slots.size());
  const auto at = [&](int slot) -> const SlotFacts& { return slots[static_cast<size_t>(slot)]; };
  for (int written = 0; written < count; ++written) {
    if (!at(written).is_written || at(written).is_virtual) continue;
    for (int other = 0; other < count; ++other) {
      const bool comes_later_itself = at(other).is_written && other <= written;
      if (other != written && !at(other).is_virtual && !comes_later_itself) pairs.push_back({written, other});
    }
  }
  return pairs;
}

UseLattice use_lattice(const Problem& problem, const SlotUse& use, const Bounds& bounds) {
  const Operand& operand = problem[use.role];
  if (!use.is_offsets) return {storage_axes(problem, use.role, bounds), element_bytes(operand.dtype)};
  return {{{Axis{bounds.batch + 1, operand.offsets_stride}}, 1}, element_bytes(operand.offsets_dtype)};
}

int64_t use_bytes(const Problem& problem, const SlotUse& use, const Bounds& bounds) {
  return use.is_offsets ? offsets_footprint_bytes(problem[use.role], bounds.batch)
                        : footprint_bytes(problem, use.role, bounds);
}

std::string describe_slot(const SlotFacts& facts, const SlotName& name) {
  if (!name.name.empty()) return text(name.name, " (uid ", name.uid, ')');
  const SlotUse& use = facts.uses.front();
  return text(name_of(use.role), use.is_offsets ? " offsets" : "", " (uid ", name.uid, ')');
}

}  // namespace attngraph
