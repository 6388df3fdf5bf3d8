#include "attngraph/graph.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "graph/add.hpp"
#include "graph/fields.hpp"

namespace attngraph {
namespace {

template <class Visit>
void for_each_uid(const Graph& graph, Visit&& visit) {
  for (const Tensor& tensor : graph.tensors) {
    visit(tensor.uid);
    if (tensor.ragged) visit(tensor.ragged->offsets);
  }
  for (const Node& node : graph.nodes) {
    std::visit(
        [&](const auto& any) {
          ports(any, [&](Role, const Port& port, bool) {
            if (port) visit(*port);
          });
        },
        node);
  }
}

Uid smallest_free_uid(const Graph& graph) {
  std::set<Uid> used;
  for_each_uid(graph, [&](Uid uid) { used.insert(uid); });
  Uid free = 1;
  while (used.contains(free)) ++free;
  return free;
}

template <class AnyNode>
bool same_node(const AnyNode& x, const AnyNode& y) {
  return x.name == y.name && ports_by_role(x) == ports_by_role(y) && x.attributes == y.attributes;
}

/// visit(node) with an empty node of each kind.
template <class Visit, class... Kinds>
void for_each_kind(const std::variant<Kinds...>*, Visit&& visit) {
  (visit(Kinds{}), ...);
}
template <class Visit>
void for_each_kind(Visit&& visit) {
  for_each_kind(static_cast<const Node*>(nullptr), visit);
}

}  // namespace

std::optional<Node> node_of(std::string_view op) {
  std::optional<Node> found;
  for_each_kind([&](auto node) {
    if (op == op_of(node)) found = std::move(node);
  });
  return found;
}

std::string all_ops() {
  std::string ops;
  for_each_kind([&](const auto& node) { ops += (ops.empty() ? "" : ", ") + std::string(op_of(node)); });
  return ops;
}

Uid add_tensor(Graph& graph, Tensor tensor, std::string name) {
  tensor.name = std::move(name);
  graph.tensors.push_back(std::move(tensor));
  return graph.tensors.back().uid = graph.fresh_uid();
}

bool operator==(const Ragged& x, const Ragged& y) { return fields(x) == fields(y); }
bool operator==(const SdpaAttributes& x, const SdpaAttributes& y) { return fields(x) == fields(y); }
bool operator==(const SdpaForward& x, const SdpaForward& y) { return same_node(x, y); }
bool operator==(const SdpaBackward& x, const SdpaBackward& y) { return same_node(x, y); }
bool operator==(const MergeAttributes& x, const MergeAttributes& y) { return fields(x) == fields(y); }
bool operator==(const MergePartials& x, const MergePartials& y) { return same_node(x, y); }
bool operator==(const Tensor& x, const Tensor& y) { return fields(x) == fields(y); }

bool operator==(const Graph& x, const Graph& y) {
  const auto& [x_name, x_tensors, x_nodes] = x;
  const auto& [y_name, y_tensors, y_nodes] = y;
  return x_name == y_name && x_tensors == y_tensors && x_nodes == y_nodes;
}

Uid Graph::tensor(std::string label, DataType dtype, const Layout& layout, std::optional<Ragged> ragged) {
  return add_tensor(*this, {0, {}, dtype, layout.dims, layout.strides, ragged}, std::move(label));
}

Uid Graph::vector(std::string label, DataType dtype, int64_t count) {
  return tensor(std::move(label), dtype, Layout{{count}, {1}, 0});
}

const Tensor* Graph::find(Uid uid) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return tensor.uid == uid; });
  return found == tensors.end() ? nullptr : &*found;
}

Tensor* Graph::find(Uid uid) { return const_cast<Tensor*>(std::as_const(*this).find(uid)); }

Uid Graph::fresh_uid() const {
  Uid largest = 0;
  for_each_uid(*this, [&](Uid uid) { largest = std::max(largest, uid); });
  return largest == std::numeric_limits<Uid>::max() ? smallest_free_uid(*this) : largest + 1;
}

}  // namespace attngraph
