#include "cli/step_memory.hpp"

#include <algorithm>

#include "base/message.hpp"
#include "plan/planner.hpp"

namespace attngraph::cli {

Status StepMemory::allocate(const Graph& graph, const Plan& plan, const WorkspaceFault& fault) {
  const MemoryKind kind = plan.state().core->target.memory;
  for (const Storage& storage : data_.storages) {
    const Tensor& owner = *graph.find(storage.owner);
    int64_t bytes = plan.footprint_bytes(storage.owner);
    if (storage.content)
      bytes = static_cast<int64_t>(storage.content->size());
    else if (storage.num_elems != Storage::kFootprint)
      bytes = storage.num_elems * element_bytes(storage.dtype);
    Result<GuardedMemory> memory =
        GuardedMemory::make({bytes, storage.alignment, 0, kind}, owner.name.c_str());
    ATTNGRAPH_RETURN_IF_ERROR(memory.status());
    storages_.push_back(std::move(memory).value());
  }
  Result<GuardedMemory> workspace = GuardedMemory::make(
      {plan.workspace_bytes(), kWorkspaceAlign, fault.misaligned_by_bytes, kind}, "workspace");
  ATTNGRAPH_RETURN_IF_ERROR(workspace.status());
  workspace_ = std::move(workspace).value();
  workspace_view_ = {workspace_.data(), plan.workspace_bytes() - fault.short_by_bytes};
  return fill();
}

Status StepMemory::fill() {
  for (size_t i = 0; i < storages_.size(); ++i) {
    storages_[i].fill(poison_.content, poison_.guard);
    if (const auto& content = data_.storages[i].content)
      std::copy(content->begin(), content->end(), storages_[i].bytes().begin());
    ATTNGRAPH_RETURN_IF_ERROR(storages_[i].upload());
  }
  workspace_.fill(poison_.content, poison_.guard);
  return workspace_.upload();
}

Status StepMemory::bind(Bindings& bindings) {
  for (const BoundTensor& tensor : data_.tensors) {
    Binding binding{tensor.uid, nullptr, 0};
    if (tensor.storage) {
      const GuardedMemory& storage = storages_[*tensor.storage];
      binding.bytes = static_cast<int64_t>(storage.bytes().size()) - tensor.offset_bytes;
      if (binding.bytes < 0)
        return fail(Code::kBadBinding, "bind.", tensor.uid, ".offset: is byte ", tensor.offset_bytes,
                    "; the storage has ", storage.bytes().size());
      binding.data = storage.data() + tensor.offset_bytes;
    }
    ATTNGRAPH_RETURN_IF_ERROR(bindings.set(binding));
  }
  return Status();
}

Status StepMemory::check(const Graph& graph, const Plan& plan) {
  for (GuardedMemory& storage : storages_) ATTNGRAPH_RETURN_IF_ERROR(storage.download());
  ATTNGRAPH_RETURN_IF_ERROR(workspace_.download());
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Storage& storage = data_.storages[i];
    const Tensor& owner = *graph.find(storage.owner);
    if (const Status guards = storages_[i].check_guards(); !guards.ok())
      return fail(Code::kInternal, "uid ", owner.uid, " \"", owner.name, "\": ", guards.message());
    const std::span<const std::byte> bytes = storages_[i].bytes();
    if (!storage.holds_output && !std::equal(bytes.begin(), bytes.end(), storage.content->begin()))
      return fail(Code::kInternal, "uid ", owner.uid, " \"", owner.name, "\": an input was written");
  }
  const Status guards = workspace_.check_guards();
  return guards.ok() ? check_guards(plan, workspace_view_)
                     : fail(Code::kInternal, "workspace: ", guards.message());
}

OutputBits StepMemory::output(const Tensor& tensor) const {
  const BoundTensor& place = *data_.find(tensor.uid);
  const std::span<const std::byte> bytes = from(place);
  OutputBits bits;
  bits.dtype = tensor.dtype;
  bits.bytes.assign(bytes.begin(), bytes.end());
  bits.untouched.resize(bytes.size() / static_cast<size_t>(element_bytes(tensor.dtype)));
  for (size_t i = 0; i < bits.untouched.size(); ++i) bits.untouched[i] = is_untouched(place, tensor.dtype, i);
  return bits;
}

bool StepMemory::is_untouched(const BoundTensor& tensor, DataType dtype, size_t index) const {
  const auto size = static_cast<size_t>(element_bytes(dtype)), begin = index * size;
  const auto element = from(tensor).subspan(begin, size);
  const Storage& storage = data_.storages[*tensor.storage];
  if (!storage.content)
    return std::all_of(element.begin(), element.end(), [&](std::byte b) { return b == poison_.content; });
  const size_t at = static_cast<size_t>(tensor.offset_bytes) + begin;
  return std::equal(element.begin(), element.end(), storage.content->begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace attngraph::cli
