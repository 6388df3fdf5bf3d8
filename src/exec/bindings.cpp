#include <algorithm>

#include "attngraph/execute.hpp"
#include "base/message.hpp"
#include "plan/planner.hpp"

namespace attngraph {

Bindings::Bindings(const Plan& plan)
    : plan_(plan),
      data_(static_cast<size_t>(plan.num_slots())),
      bytes_(data_.size(), PointerTable::kNotBound) {}

Status Bindings::set(const Binding& binding) {
  const PlanState& state = plan_.state();
  const int slot = state.find(binding.uid);
  if (slot == kNoSlot)
    return fail(Code::kBadBinding, "uid ", binding.uid, ": is bound; the plan has no tensor with this uid");
  const size_t index = static_cast<size_t>(slot);
  if (state.core->slots[index].is_virtual)
    return fail(Code::kBadBinding, describe_slot(state.core->slots[index], state.names[index]),
                ": is bound; a virtual tensor lives in the workspace");
  data_[index] = binding.data;
  bytes_[index] = std::max(binding.bytes, PointerTable::kNotTold);
  return {};
}

}  // namespace attngraph
