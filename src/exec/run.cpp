#include <algorithm>
#include <cstring>
#include <limits>

#include "attngraph/execute.hpp"
#include "base/message.hpp"
#include "device/device.hpp"
#include "exec/bound_data.hpp"
#include "exec/check.hpp"
#include "exec/guards.hpp"
#include "plan/call.hpp"
#include "plan/slices.hpp"

namespace attngraph {
namespace {

/// One call: its pointers and sizes, and where its regions lie.
struct Call {
  const PlanCore& core;
  const PointerTable& pointers;
  const CallSizes& sizes;
  PlacedWorkspace workspace;
};

Buffers buffers_of(const Call& call, const ProgramNode& node) {
  const auto pointer = [&](int slot) -> std::byte* {
    if (slot == kNoSlot) return nullptr;
    const size_t index = static_cast<size_t>(slot);
    if (call.core.slots[index].is_virtual) return call.workspace[call.core.virtual_regions[index]];
    return static_cast<std::byte*>(call.pointers.data[index]);
  };
  Buffers buffers;
  for (size_t role = 0; role < kNumRoles; ++role) {
    buffers.data[role] = pointer(node.slots.data[role]);
    buffers.offsets[role] = pointer(node.slots.offsets[role]);
  }
  buffers.bounds = call_bounds(node.problem, call.sizes);
  return buffers;
}

void fill_host(std::byte* begin, int64_t bytes, Fill what) {
  if (what == Fill::kZero) std::memset(begin, 0, static_cast<size_t>(bytes));
  if (what != Fill::kMinusInf) return;
  float* values = reinterpret_cast<float*>(begin);
  std::fill(values, values + bytes / int64_t{sizeof(float)}, -std::numeric_limits<float>::infinity());
}

/// Fills the regions of one node: all before its first slice, those of Scope::kSlice before each.
Status fill_regions(const Call& call, int node, bool is_first, void* stream) {
  const auto entries = call.workspace.layout->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].node != node || (!is_first && entries[i].booking.scope == Scope::kNode)) continue;
    const RegionId id{static_cast<int>(i)};
    const int64_t bytes = call.workspace.region(id).bytes;
    if (call.core.target.memory == MemoryKind::kHost)
      fill_host(call.workspace[id], bytes, entries[i].booking.fill);
    else
      ATTNGRAPH_RETURN_IF_ERROR(device::fill(call.workspace[id], bytes, entries[i].booking.fill, stream));
  }
  return {};
}

Status check_all_bound_data(const PlanState& state, const Call& call, void* stream) {
  const RegionId scratch = call.core.binding_check;
  for (const ProgramNode& node : call.core.program.nodes)
    ATTNGRAPH_RETURN_IF_ERROR(check_bound_data(
        state, node, buffers_of(call, node), scratch.index < 0 ? nullptr : call.workspace[scratch], stream));
  return {};
}

Status run_node(const Call& call, size_t n, void* stream) {
  const ProgramNode& node = call.core.program.nodes[n];
  const NodePlan& plan = call.core.nodes[n];
  const Buffers buffers = buffers_of(call, node);
  const int64_t batch = buffers.bounds.batch, kv_heads = node.problem.kv_heads;
  const SliceCounts counts = count_slices(plan.shape, batch, kv_heads);
  for (int64_t i = 0; i < counts.total(); ++i) {
    const Slice slice = slice_at(i, counts, plan.shape, batch, kv_heads);
    ATTNGRAPH_RETURN_IF_ERROR(fill_regions(call, static_cast<int>(n), slice.is_first, stream));
    ATTNGRAPH_RETURN_IF_ERROR(plan.launch->run(buffers, slice, call.workspace, stream));
  }
  return {};
}

}  // namespace

Status execute(const Plan& plan, const Bindings& bindings, Workspace workspace, void* stream) {
  return execute(plan, bindings, CallSizes{}, workspace, stream);
}

Status execute(const Plan& plan, const Bindings& bindings, const CallSizes& sizes, Workspace workspace,
               void* stream) {
  if (&bindings.plan().state() != &plan.state())
    return fail(Code::kBadBinding, "bindings: were made for another plan; make them from this one");
  return execute(plan, bindings.table(), sizes, workspace, stream);
}

Status execute(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes, Workspace workspace,
               void* stream) {
  const PlanCore& core = *plan.state().core;
  ATTNGRAPH_RETURN_IF_ERROR(check_sizes(core, sizes));
  ATTNGRAPH_RETURN_IF_ERROR(check_bindings(plan.state(), pointers, sizes));
  MovedRegions moved;
  Call call{core, pointers, sizes, {static_cast<std::byte*>(workspace.data), &core.workspace}};
  int64_t needed_bytes = core.workspace.bytes();
  if (!is_whole(sizes) && core.options.varying != Varying{}) {
    needed_bytes = place_call(core, sizes, moved);
    call.workspace.moved = {moved.data(), core.workspace.entries().size()};
  }
  ATTNGRAPH_RETURN_IF_ERROR(check_workspace(plan.state(), pointers, sizes, workspace, needed_bytes));
  if (core.options.validate_bindings)
    ATTNGRAPH_RETURN_IF_ERROR(check_all_bound_data(plan.state(), call, stream));
  if (core.workspace.guard_bytes() > 0)
    ATTNGRAPH_RETURN_IF_ERROR(write_guards(core.workspace, core.target.memory, call.workspace.base, stream));
  for (size_t n = 0; n < core.nodes.size(); ++n) ATTNGRAPH_RETURN_IF_ERROR(run_node(call, n, stream));
  return {};
}

Status execute(const Plan& plan, std::initializer_list<Binding> bindings, Workspace workspace, void* stream) {
  Bindings table(plan);
  for (const Binding& binding : bindings) ATTNGRAPH_RETURN_IF_ERROR(table.set(binding));
  return execute(plan, table, workspace, stream);
}

Status check_guards(const Plan& plan, Workspace workspace) {
  const PlanCore& core = *plan.state().core;
  if (core.workspace.guard_bytes() == 0 || workspace.data == nullptr) return {};
  return find_overrun(core.workspace, core.target.memory, static_cast<const std::byte*>(workspace.data));
}

}  // namespace attngraph
