#include "attngraph/recording.hpp"

#include <vector>

#include "base/message.hpp"
#include "device/device.hpp"
#include "exec/check.hpp"
#include "plan/call.hpp"

namespace attngraph {

struct Recording::State {
  explicit State(const Plan& made) : plan(made) {}

  const Plan plan;
  std::vector<void*> data;
  std::vector<int64_t> bytes;  ///< empty: not told
  CallSizes sizes;
  Workspace workspace;
  device::Replay replay;  ///< empty on a host

  Status execute(void* stream) const {
    const PointerTable table{data.data(), bytes.empty() ? nullptr : bytes.data(),
                             static_cast<int>(data.size())};
    return attngraph::execute(plan, table, sizes, workspace, stream);
  }
};

Result<Recording> Recording::make(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes,
                                  Workspace workspace) {
  const PlanCore& core = *plan.state().core;
  ATTNGRAPH_RETURN_IF_ERROR(check_sizes(core, sizes));
  ATTNGRAPH_RETURN_IF_ERROR(check_bindings(plan.state(), pointers, sizes));
  const auto needed = plan.workspace_bytes_for(sizes);
  ATTNGRAPH_RETURN_IF_ERROR(needed.status());
  ATTNGRAPH_RETURN_IF_ERROR(check_workspace(plan.state(), pointers, sizes, workspace, *needed));
  const auto count = static_cast<size_t>(pointers.count);
  auto state = std::make_shared<State>(plan);
  state->sizes = sizes, state->workspace = workspace;
  state->data.assign(pointers.data, pointers.data + count);
  if (pointers.bytes != nullptr) state->bytes.assign(pointers.bytes, pointers.bytes + count);
  if (core.target.memory == MemoryKind::kCuda) {
    auto replay = device::Replay::record([&](void* stream) { return state->execute(stream); });
    ATTNGRAPH_RETURN_IF_ERROR(replay.status());
    state->replay = std::move(*replay);
  }
  return Recording(std::move(state));
}

Result<Recording> Recording::make(const Bindings& bindings, Workspace workspace) {
  return make(bindings.plan(), bindings.table(), {}, workspace);
}

Status Recording::launch(void* stream) const {
  if (!state_->replay.is_recorded()) return state_->execute(stream);
  const auto captured = device::is_captured(stream);
  ATTNGRAPH_RETURN_IF_ERROR(captured.status());
  return *captured ? state_->execute(stream) : state_->replay.launch(stream);
}

}  // namespace attngraph
