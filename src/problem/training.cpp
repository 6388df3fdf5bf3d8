#include "attngraph/training.hpp"

#include <set>
#include <utility>

#include "base/message.hpp"
#include "graph/add.hpp"
#include "graph/fields.hpp"
#include "problem/derive.hpp"

namespace attngraph {
namespace {

struct Choice {
  Role gradient;
  bool Gradients::*wanted;
};
constexpr Choice kChoices[] = {
    {Role::kDq, &Gradients::q},       {Role::kDk, &Gradients::k},
    {Role::kDv, &Gradients::v},       {Role::kDbias, &Gradients::bias},
    {Role::kDsink, &Gradients::sink}, {Role::kDalibiSlopes, &Gradients::alibi_slopes}};

Status check(const Graph& graph, const Gradients& wanted) {
  const SdpaForward* node = graph.nodes.size() == 1 ? std::get_if<SdpaForward>(&graph.nodes[0]) : nullptr;
  if (!node)
    return fail(Code::kInvalidGraph, "training pair: graph of ", graph.nodes.size(),
                " nodes; must be one sdpa_forward");
  const PortTable inputs = ports_by_role(*node);
  bool wants_any = false;
  for (const auto& [gradient, member] : kChoices) {
    if (!(wanted.*member)) continue;
    wants_any = true;
    const Role primal = *primal_of(gradient);
    if (!inputs[static_cast<size_t>(primal)])
      return fail(Code::kInvalidGraph, "training pair: ", gradient, " wanted of a forward without ", primal,
                  "; must be an input's gradient");
  }
  if (!wants_any) return fail(Code::kInvalidGraph, "training pair: no gradient wanted; must be at least one");
  for (const Role role : {Role::kPageTableK, Role::kPageTableV})
    if (inputs[static_cast<size_t>(role)])
      return fail(Code::kInvalidGraph, "training pair: ", role, " given; must be absent, gradients of pages ",
                  "are not defined");
  return graph.validate();
}

/// Layouts of outputs become inputs of backward, where strides must be said.
void spell_out_strides(Tensor& tensor) {
  if (tensor.strides.empty()) tensor.strides = dense(tensor.dims).strides;
}

/// Without the tensors that no port and no raggedness names.
void drop_unused_tensors(Graph& graph, const PortTable& used) {
  std::set<Uid> kept;
  for (const Port& port : used)
    if (port) kept.insert(*port);
  for (const Tensor& tensor : graph.tensors)
    if (kept.contains(tensor.uid) && tensor.ragged) kept.insert(tensor.ragged->offsets);
  std::erase_if(graph.tensors, [&](const Tensor& tensor) { return !kept.contains(tensor.uid); });
}

/// `backward` holds the tensors of the forward graph; adds do and the gradients.
SdpaBackward backward_node(Graph& graph, const SdpaForward& forward, const Gradients& wanted) {
  SdpaBackward node;
  node.name = forward.name;
  node.attributes = forward.attributes;
  const PortTable shared = ports_by_role(forward);
  ports(node, [&](Role role, Port& port, bool is_output) {
    if (!is_output) port = shared[static_cast<size_t>(role)];
  });
  const auto add_like = [&](Role role, Role model) {
    const Tensor& tensor = *graph.find(*shared[static_cast<size_t>(model)]);
    const int64_t slots = slots_of(max_total_of(forward.attributes, model), tensor);
    return add_tensor(graph, sibling_of(tensor, slots), std::string(name_of(role)));
  };
  node.dout = add_like(Role::kDo, Role::kO);
  ports(node, [&](Role role, Port& port, bool) {
    for (const auto& [gradient, member] : kChoices)
      if (role == gradient && wanted.*member) port = add_like(role, *primal_of(role));
  });
  return node;
}

}  // namespace

Result<TrainingPair> training_pair(const Graph& forward, const Gradients& wanted) {
  ATTNGRAPH_RETURN_IF_ERROR(check(forward, wanted));
  TrainingPair pair{forward, {}};
  SdpaForward& node = std::get<SdpaForward>(pair.forward.nodes[0]);
  if (!node.stats) node.stats = add_tensor(pair.forward, token_major_stats(*forward.find(*node.q)), "stats");
  spell_out_strides(*pair.forward.find(*node.o));
  spell_out_strides(*pair.forward.find(*node.stats));

  pair.backward.name = pair.forward.name;
  pair.backward.tensors = pair.forward.tensors;
  SdpaBackward backward = backward_node(pair.backward, node, wanted);
  drop_unused_tensors(pair.backward, ports_by_role(backward));
  pair.backward.nodes.emplace_back(std::move(backward));
  return pair;
}

}  // namespace attngraph
