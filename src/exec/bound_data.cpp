#include "exec/bound_data.hpp"

#include "base/message.hpp"
#include "device/check.hpp"
#include "problem/host_rows.hpp"

namespace attngraph {
namespace {

WrongEntry first_wrong_on_host(std::span<const EntryCheck> checks) {
  for (size_t i = 0; i < checks.size(); ++i)
    for (int64_t number = 0; number < checks[i].count; ++number) {
      WrongEntry entry = check_entry(checks[i], number, read_int);
      entry.check = static_cast<int32_t>(i);
      if (entry.fault != EntryFault::kNone) return entry;
    }
  return {};
}

/// "; must not decrease".
std::string fault_of(const EntryCheck& check, const WrongEntry& entry) {
  const std::string after = text(" after ", entry.before);
  const std::string grows = check.kind == EntryKind::kCuLength ? after : "";
  switch (entry.fault) {
    case EntryFault::kNone:
      break;
    case EntryFault::kNegative:
      return "; must not be negative";
    case EntryFault::kDecreasing:
      return after + "; must not decrease";
    case EntryFault::kTooLong:
      return text(grows, "; the longest declared is ", check.limit);
    case EntryFault::kBeyondCapacity:
      return text(" for a sequence of ", entry.rows, " rows; ", entry.rows_inside, " rows lie within the ",
                  check.limit, " token slots of ", check.role);
    case EntryFault::kShared:
      return text(" behind a sequence of ", entry.rows, " rows from ", entry.before, "; those of ",
                  check.role, " must share no token slot");
    case EntryFault::kNoSuchPage:
      return text("; the container has pages 0 to ", check.limit - 1);
  }
  return "";
}

Status describe(const PlanState& state, const ProgramNode& node, const EntryCheck& check,
                const WrongEntry& entry) {
  const auto& slots = check.kind == EntryKind::kOffset ? node.slots.offsets : node.slots.data;
  const auto slot = static_cast<size_t>(slots[static_cast<size_t>(check.role)]);
  const std::string place =
      check.kind == EntryKind::kPage ? text('[', entry.index, ", ", entry.column, ']') : text(entry.index);
  return fail(Code::kBadBinding, describe_slot(state.core->slots[slot], state.names[slot]), ": entry ", place,
              " is ", entry.value, fault_of(check, entry));
}

}  // namespace

Status check_bound_data(const PlanState& state, const ProgramNode& node, const Buffers& buffers,
                        std::byte* scratch, void* stream) {
  const EntryChecks checks = entry_checks(node.problem, buffers);
  const Result<WrongEntry> entry = state.core->target.memory == MemoryKind::kHost
                                       ? Result<WrongEntry>(first_wrong_on_host(checks.span()))
                                       : device::first_wrong_entry(checks.span(), scratch, stream);
  ATTNGRAPH_RETURN_IF_ERROR(entry.status());
  if (entry->fault == EntryFault::kNone) return {};
  return describe(state, node, checks.list[static_cast<size_t>(entry->check)], *entry);
}

}  // namespace attngraph
