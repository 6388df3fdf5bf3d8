#include <algorithm>
#include <cstring>
#include <utility>

#include "attngraph/compat/frontend.hpp"
#include "base/message.hpp"
#include "device/device.hpp"

namespace attngraph::compat {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign; }

/// A tensor that the caller binds, and its place in the pointer table.
struct Bound {
  Uid uid = 0;
  size_t slot = 0;
};

/// Derived slopes, and their place in the workspace.
struct PlacedSlopes {
  size_t slot = 0;
  int64_t offset_bytes = 0;
  std::vector<float> values;
};

Status write_slopes(const PlacedSlopes& slopes, MemoryKind memory, std::byte* to, void* stream) {
  if (memory == MemoryKind::kCuda) return device::write(reinterpret_cast<float*>(to), slopes.values, stream);
  std::memcpy(to, slopes.values.data(), slopes.values.size() * sizeof(float));
  return {};
}

Result<double> host_scale(const HostScale& scale, const Pointers& pointers) {
  const auto found = pointers.find(scale.uid);
  if (found == pointers.end() || found->second == nullptr)
    return fail(Code::kBadBinding, "Attn_scale (uid ", scale.uid,
                "): is not bound; must be a float in host memory");
  float value = 0;
  std::memcpy(&value, found->second, sizeof value);
  return double{value};
}

}  // namespace

struct Program::State {
  State(Translated made, const ProgramOptions& given, const Target& where, Plan first)
      : translated(std::move(made)), options(given), target(where), plan(std::move(first)) {}

  Translated translated;
  ProgramOptions options;
  Target target;
  Plan plan;
  std::vector<Bound> bound;
  std::vector<PlacedSlopes> slopes;
  std::vector<Uid> uids;
  int64_t workspace_bytes = 0;

  void place() {
    const auto is_derived = [&](Uid uid) {
      return std::any_of(translated.slopes.begin(), translated.slopes.end(),
                         [&](const DerivedSlopes& derived) { return derived.uid == uid; });
    };
    for (const Tensor& tensor : translated.graph.tensors) {
      const int slot = plan.slot(tensor.uid);
      if (slot < 0 || is_derived(tensor.uid)) continue;
      bound.push_back({tensor.uid, static_cast<size_t>(slot)});
      uids.push_back(tensor.uid);
    }
    for (const HostScale& scale : translated.scales) uids.push_back(scale.uid);
    std::sort(uids.begin(), uids.end());
    uids.erase(std::unique(uids.begin(), uids.end()), uids.end());
    workspace_bytes = plan.workspace_bytes();
    for (const DerivedSlopes& derived : translated.slopes) {
      const int slot = plan.slot(derived.uid);
      if (slot < 0) continue;
      const int64_t offset = aligned(workspace_bytes);
      workspace_bytes = offset + static_cast<int64_t>(derived.values.size() * sizeof(float));
      slopes.push_back({static_cast<size_t>(slot), offset, derived.values});
    }
  }

  /// The plan for the scales that a call brings.
  Result<Plan> plan_for(const Pointers& pointers) const {
    if (translated.scales.empty()) return plan;
    Graph graph = translated.graph;
    for (const HostScale& scale : translated.scales) {
      const Result<double> value = host_scale(scale, pointers);
      ATTNGRAPH_RETURN_IF_ERROR(value.status());
      std::visit(
          [&](auto& node) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(node)>, MergePartials>)
              node.attributes.scale = *value;
          },
          graph.nodes[scale.node]);
    }
    return options.context->plan(graph, target, options.plan);
  }
};

Result<Program> Program::make(Translated translated, const ProgramOptions& options) {
  if (options.context == nullptr)
    return fail(Code::kInvalidGraph, "context: is null; must be one that outlives the program");
  Result<Target> target =
      options.target ? Result<Target>(*options.target) : options.context->target_of("cuda");
  ATTNGRAPH_RETURN_IF_ERROR(target.status());
  if (options.sm_count && target->memory == MemoryKind::kCuda) {
    if (*options.sm_count < 1 || *options.sm_count > target->sm_count)
      return fail(Code::kInvalidGraph, "sm_count: is ", *options.sm_count, "; must be 1 .. ",
                  target->sm_count);
    target->sm_count = *options.sm_count;
  }
  Result<Plan> plan = options.context->plan(translated.graph, *target, options.plan);
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  auto state = std::make_shared<State>(std::move(translated), options, *target, *std::move(plan));
  state->place();
  return Program(std::move(state));
}

Program::Program(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const Plan& Program::plan() const { return state_->plan; }
const Graph& Program::graph() const { return state_->translated.graph; }
int64_t Program::workspace_bytes() const { return state_->workspace_bytes; }
const std::vector<Uid>& Program::uids() const { return state_->uids; }
bool Program::is_graph_alone() const {
  return state_->translated.slopes.empty() && state_->translated.scales.empty();
}

Status Program::execute(const Pointers& pointers, void* workspace, void* stream) const {
  const State& state = *state_;
  const Result<Plan> plan = state.plan_for(pointers);
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  if (!state.slopes.empty() && reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign != 0)
    return fail(Code::kBadBinding, "workspace: is at ", workspace, "; must be ", kWorkspaceAlign,
                "-byte aligned, as derived slopes are written there");
  if (workspace == nullptr && state.workspace_bytes > 0)
    return fail(Code::kBadBinding, "workspace: is null; must hold ", state.workspace_bytes, " bytes");
  const size_t num_slots = static_cast<size_t>(plan->num_slots());
  std::vector<void*> data(num_slots);
  std::vector<int64_t> bytes(num_slots, PointerTable::kNotBound);
  for (const auto& [uid, slot] : state.bound) {
    const auto found = pointers.find(uid);
    if (found == pointers.end()) continue;
    data[slot] = found->second, bytes[slot] = PointerTable::kNotTold;
  }
  std::byte* const base = static_cast<std::byte*>(workspace);
  for (const PlacedSlopes& slopes : state.slopes) {
    data[slopes.slot] = base + slopes.offset_bytes, bytes[slopes.slot] = PointerTable::kNotTold;
    ATTNGRAPH_RETURN_IF_ERROR(write_slopes(slopes, state.target.memory, base + slopes.offset_bytes, stream));
  }
  // Behind the plan's own bytes come the slopes, which the plan would take for an overlap.
  return attngraph::execute(*plan, PointerTable{data.data(), bytes.data(), static_cast<int>(num_slots)},
                            CallSizes{}, Workspace{workspace, state.plan.workspace_bytes()}, stream);
}

Status Program::record(const Pointers& pointers, void* workspace, void* cuda_graph, bool replaces) const {
  return device::record(cuda_graph, replaces,
                        [&](void* stream) { return execute(pointers, workspace, stream); });
}

}  // namespace attngraph::compat
