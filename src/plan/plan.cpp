#include "attngraph/plan.hpp"

#include <algorithm>

#include "base/message.hpp"
#include "plan/call.hpp"
#include "plan/planner.hpp"

namespace attngraph {

Plan::Plan(std::shared_ptr<const PlanState> state) : state_(std::move(state)) {}

int64_t Plan::workspace_bytes() const { return state_->core->workspace.bytes(); }

Result<int64_t> Plan::workspace_bytes_for(const CallSizes& sizes) const {
  ATTNGRAPH_RETURN_IF_ERROR(check_sizes(*state_->core, sizes));
  MovedRegions moved;
  return place_call(*state_->core, sizes, moved);
}

std::vector<std::string> Plan::engines() const {
  std::vector<std::string> names;
  for (const NodePlan& node : state_->core->nodes) names.emplace_back(node.engine->name());
  return names;
}

int Plan::slot(Uid uid) const {
  const int slot = state_->find(uid);
  return slot == kNoSlot || state_->core->slots[static_cast<size_t>(slot)].is_virtual ? -1 : slot;
}

int Plan::num_slots() const { return state_->core->program.num_slots(); }

int64_t Plan::footprint_bytes(Uid uid) const {
  const int slot = state_->find(uid);
  return slot == kNoSlot ? -1 : state_->core->slots[static_cast<size_t>(slot)].footprint_bytes;
}

bool Plan::deterministic() const {
  return std::all_of(state_->core->nodes.begin(), state_->core->nodes.end(),
                     [](const NodePlan& node) { return node.launch->deterministic(); });
}

}  // namespace attngraph
