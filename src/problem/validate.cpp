#include "problem/validate.hpp"

#include <variant>

#include "graph/fields.hpp"
#include "problem/program.hpp"

namespace attngraph {
namespace {

template <class Sdpa>
SdpaAttributes attributes_of(const Sdpa& node) {
  return node.attributes;
}
SdpaAttributes attributes_of(const MergePartials& node) {
  SdpaAttributes attributes;
  attributes.stats_base = node.attributes.stats_base;
  attributes.max_total_q = node.attributes.max_total_q;
  return attributes;
}

constexpr Pass pass_of(const SdpaForward&) { return Pass::kForward; }
constexpr Pass pass_of(const SdpaBackward&) { return Pass::kBackward; }
constexpr Pass pass_of(const MergePartials&) { return Pass::kMerge; }

Draft draft_of(const Graph& graph, int position, const TensorIndex& index) {
  const Node& node = graph.nodes[static_cast<size_t>(position)];
  Draft draft{graph, position, std::visit([](const auto& n) { return attributes_of(n); }, node), {}, {}};
  draft.tensors.fill(-1), draft.offsets.fill(-1);
  draft.problem.pass = std::visit([](const auto& n) { return pass_of(n); }, node);
  const auto enter = [&](Role role, const Port& port, bool) {
    if (!port) return;
    const size_t i = static_cast<size_t>(role);
    draft.tensors[i] = index.find(*port);
    if (const auto& ragged = draft[role].ragged) draft.offsets[i] = index.find(ragged->offsets);
  };
  std::visit([&](const auto& n) { ports(n, enter); }, node);
  return draft;
}

constexpr Status (*kNodeSteps[])(Draft&) = {[](Draft& draft) { return check_roles(draft); }, check_shapes,
                                            check_attributes, check_footprints,
                                            [](Draft& draft) { return check_outputs(draft); }};

/// Numbers tensors as slots by first use.
class Slots {
 public:
  explicit Slots(const Graph& graph) : graph_(graph), slot_of_(graph.tensors.size(), kNoSlot) {}

  void enter(const std::array<int, kNumRoles>& tensors, std::array<int, kNumRoles>& slots,
             ValidatedGraph& result) {
    for (size_t role = 0; role < kNumRoles; ++role)
      if (tensors[role] >= 0) slots[role] = slot(static_cast<size_t>(tensors[role]), result);
  }

 private:
  int slot(size_t position, ValidatedGraph& result) {
    if (slot_of_[position] == kNoSlot) {
      slot_of_[position] = result.program.num_slots();
      const Tensor& tensor = graph_.tensors[position];
      result.program.virtual_slots.push_back(tensor.is_virtual);
      result.slot_names.push_back({tensor.uid, tensor.name});
    }
    return slot_of_[position];
  }

  const Graph& graph_;
  std::vector<int> slot_of_;  ///< by position in Graph::tensors
};

/// Names for each ragged tensor the first role with the same offset tensor.
void set_offsets_owners(const Draft& draft, Problem& problem) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    if (!problem.operands[i].ragged) continue;
    size_t owner = 0;
    while (draft.offsets[owner] != draft.offsets[i]) ++owner;
    problem.operands[i].offsets_owner = static_cast<Role>(owner);
  }
}

}  // namespace

Result<ValidatedGraph> validate(const Graph& graph) {
  if (graph.nodes.empty()) return fail(Code::kInvalidGraph, "graph: has no nodes; must have at least one");
  const TensorIndex index(graph);
  ATTNGRAPH_RETURN_IF_ERROR(index.unique());
  const auto wires = connect(graph, index);
  if (!wires.ok()) return wires.status();
  ATTNGRAPH_RETURN_IF_ERROR(check_tensors(graph, index, *wires));

  ValidatedGraph result;
  result.program.nodes.reserve(graph.nodes.size());
  result.program.virtual_slots.reserve(graph.tensors.size());
  result.slot_names.reserve(graph.tensors.size());
  Slots slots(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Draft draft = draft_of(graph, static_cast<int>(i), index);
    for (const auto step : kNodeSteps) ATTNGRAPH_RETURN_IF_ERROR(step(draft));
    ProgramNode& node = result.program.nodes.emplace_back();
    node.problem = draft.problem;
    set_offsets_owners(draft, node.problem);
    slots.enter(draft.tensors, node.slots.data, result);
    slots.enter(draft.offsets, node.slots.offsets, result);
  }
  return result;
}

Status Graph::validate() const { return attngraph::validate(*this).status(); }

std::string label(const Tensor& tensor) {
  if (tensor.name.empty()) return text("uid ", tensor.uid);
  return text("uid ", tensor.uid, " \"", tensor.name, '"');
}

std::string where(const Graph& graph, int node) {
  const std::string& name = std::visit([](const auto& n) -> const std::string& { return n.name; },
                                       graph.nodes[static_cast<size_t>(node)]);
  return name.empty() ? text("node ", node) : text("node ", node, " \"", name, '"');
}

std::string where(const Draft& draft, Role role) {
  return text(where(draft.graph, draft.node), ", ", role, " (", label(draft[role]), ')');
}

}  // namespace attngraph
