#include <algorithm>
#include <cstring>
#include <limits>

#include "attngraph/execute.hpp"
#include "base/message.hpp"
#include "exec/bound_data.hpp"
#include "exec/check.hpp"
#include "exec/guards.hpp"
#include "plan/planner.hpp"
#include "plan/slices.hpp"

namespace attngraph {
namespace {

Buffers buffers_of(const PlanCore& core, const ProgramNode& node, const Bindings& bindings, std::byte* base) {
  const auto pointer = [&](int slot) -> std::byte* {
    if (slot == kNoSlot) return nullptr;
    const size_t index = static_cast<size_t>(slot);
    if (core.slots[index].is_virtual)
      return PlacedWorkspace{base, &core.workspace}[core.virtual_regions[index]];
    return static_cast<std::byte*>(bindings.entries()[index].data);
  };
  Buffers buffers;
  for (size_t role = 0; role < kNumRoles; ++role) {
    buffers.data[role] = pointer(node.slots.data[role]);
    buffers.offsets[role] = pointer(node.slots.offsets[role]);
  }
  buffers.bounds = declared_bounds(node.problem);
  return buffers;
}

void fill(std::byte* begin, int64_t bytes, Fill what) {
  if (what == Fill::kZero) std::memset(begin, 0, static_cast<size_t>(bytes));
  if (what != Fill::kMinusInf) return;
  float* values = reinterpret_cast<float*>(begin);
  std::fill(values, values + bytes / int64_t{sizeof(float)}, -std::numeric_limits<float>::infinity());
}

/// Fills the regions of one node: all before its first slice, those of Scope::kSlice before each.
void fill_regions(const WorkspaceLayout& layout, int node, bool is_first, std::byte* base) {
  for (size_t i = 0; i < layout.entries().size(); ++i) {
    const WorkspaceLayout::Entry& entry = layout.entries()[i];
    if (entry.node != node || (!is_first && entry.booking.scope == Scope::kNode)) continue;
    fill(base + layout.regions()[i].offset, entry.booking.bytes, entry.booking.fill);
  }
}

}  // namespace

Status execute(const Plan& plan, const Bindings& bindings, Workspace workspace, void* stream) {
  ATTNGRAPH_RETURN_IF_ERROR(check_bindings(plan, bindings, workspace));
  const PlanCore& core = *plan.state().core;
  std::byte* base = static_cast<std::byte*>(workspace.data);
  if (core.options.validate_bindings)
    for (const ProgramNode& node : core.program.nodes)
      ATTNGRAPH_RETURN_IF_ERROR(check_bound_data(plan.state(), node, buffers_of(core, node, bindings, base)));
  if (core.workspace.guard_bytes() > 0) write_guards(core.workspace, base);
  for (size_t n = 0; n < core.nodes.size(); ++n) {
    const Buffers buffers = buffers_of(core, core.program.nodes[n], bindings, base);
    const NodePlan& node = core.nodes[n];
    const int64_t batch = buffers.bounds.batch, kv_heads = core.program.nodes[n].problem.kv_heads;
    const SliceCounts counts = count_slices(node.shape, batch, kv_heads);
    for (int64_t i = 0; i < counts.total(); ++i) {
      const Slice slice = slice_at(i, counts, node.shape, batch, kv_heads);
      fill_regions(core.workspace, static_cast<int>(n), slice.is_first, base);
      ATTNGRAPH_RETURN_IF_ERROR(node.launch->run(buffers, slice, {base, &core.workspace}, stream));
    }
  }
  return {};
}

Status execute(const Plan& plan, std::initializer_list<Binding> bindings, Workspace workspace, void* stream) {
  Bindings table(plan);
  for (const Binding& binding : bindings) ATTNGRAPH_RETURN_IF_ERROR(table.set(binding));
  return execute(plan, table, workspace, stream);
}

Status check_guards(const Plan& plan, Workspace workspace) {
  const WorkspaceLayout& layout = plan.state().core->workspace;
  if (layout.guard_bytes() == 0 || workspace.data == nullptr) return {};
  return find_overrun(layout, static_cast<const std::byte*>(workspace.data));
}

}  // namespace attngraph
