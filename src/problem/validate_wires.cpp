#include <algorithm>
#include <variant>

#include "graph/fields.hpp"
#include "problem/validate.hpp"

namespace attngraph {
namespace {

/// Walks the ports of all nodes in file order until `visit(node, role, uid, is_output)` fails.
template <class Visit>
Status each_port(const Graph& graph, Visit&& visit) {
  Status first;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()) && first.ok(); ++node) {
    const auto visit_port = [&](Role role, const Port& port, bool is_output) {
      if (port && first.ok()) first = visit(node, role, *port, is_output);
    };
    std::visit([&](const auto& n) { ports(n, visit_port); }, graph.nodes[static_cast<size_t>(node)]);
  }
  return first;
}

class Connector {
 public:
  Connector(const Graph& graph, const TensorIndex& index)
      : graph_(graph), index_(index), wires_(graph.tensors.size()) {}

  Result<std::vector<Wire>> connect() {
    ATTNGRAPH_RETURN_IF_ERROR(each_port(graph_, [this](int node, Role role, Uid uid, bool is_output) {
      if (index_.find(uid) < 0) return unknown(node, role, uid);
      return is_output ? make(node, role, uid) : Status();
    }));
    ATTNGRAPH_RETURN_IF_ERROR(each_port(graph_, [this](int node, Role role, Uid uid, bool is_output) {
      return is_output ? Status() : read(node, role, uid);
    }));
    for (size_t i = 0; i < wires_.size(); ++i)
      if (graph_.tensors[i].is_virtual)
        ATTNGRAPH_RETURN_IF_ERROR(check_virtual(graph_.tensors[i], wires_[i]));
    return std::move(wires_);
  }

 private:
  template <class... Parts>
  Status refuse_port(int node, Role role, const Tensor& tensor, const Parts&... parts) const {
    return fail(Code::kInvalidGraph, where(graph_, node), ", ", role, " (", label(tensor), "): ", parts...);
  }

  Status unknown(int node, Role role, Uid uid) const {
    return fail(Code::kInvalidGraph, where(graph_, node), ", ", role, ": uid ", uid,
                " is no tensor of the graph; must be the uid of one");
  }

  Status make(int node, Role role, Uid uid) {
    const size_t position = static_cast<size_t>(index_.find(uid));
    Wire& wire = wires_[position];
    if (wire.maker == node)
      return refuse_port(node, role, graph_.tensors[position],
                         "is two outputs of the node; each must be a tensor of its own");
    if (wire.maker != Wire::kNobody)
      return refuse_port(node, role, graph_.tensors[position], "is made by ", where(graph_, wire.maker),
                         " already; must have one maker");
    wire.maker = node;
    return {};
  }

  Status read(int node, Role role, Uid uid) {
    const size_t position = static_cast<size_t>(index_.find(uid));
    Wire& wire = wires_[position];
    if (wire.maker == node)
      return refuse_port(node, role, graph_.tensors[position],
                         "is input and output of the node; must be two tensors");
    if (wire.maker > node)
      return refuse_port(node, role, graph_.tensors[position], "is made by ", where(graph_, wire.maker),
                         ", which runs later; must be made before it is read");
    wire.last_reader = node;
    return {};
  }

  static Status check_virtual(const Tensor& tensor, const Wire& wire) {
    if (wire.maker == Wire::kNobody)
      return fail(Code::kInvalidGraph, "tensor (", label(tensor),
                  "): is virtual but no node makes it; must be the output of a node");
    if (wire.last_reader == Wire::kNobody)
      return fail(Code::kInvalidGraph, "tensor (", label(tensor),
                  "): is virtual but no node reads it; must be read by a later node or bound");
    return {};
  }

  const Graph& graph_;
  const TensorIndex& index_;
  std::vector<Wire> wires_;
};

}  // namespace

TensorIndex::TensorIndex(const Graph& graph) {
  by_uid_.reserve(graph.tensors.size());
  for (const Tensor& tensor : graph.tensors)
    by_uid_.emplace_back(tensor.uid, static_cast<int>(by_uid_.size()));
  std::sort(by_uid_.begin(), by_uid_.end());
}

int TensorIndex::find(Uid uid) const {
  const auto found = std::lower_bound(by_uid_.begin(), by_uid_.end(), std::pair{uid, 0});
  return found != by_uid_.end() && found->first == uid ? found->second : -1;
}

Status TensorIndex::unique() const {
  for (size_t i = 1; i < by_uid_.size(); ++i) {
    if (by_uid_[i - 1].first != by_uid_[i].first) continue;
    return fail(Code::kInvalidGraph, "tensors: uid ", by_uid_[i].first, " is borne by tensors ",
                by_uid_[i - 1].second, " and ", by_uid_[i].second, "; must be unique");
  }
  return {};
}

Result<std::vector<Wire>> connect(const Graph& graph, const TensorIndex& index) {
  return Connector(graph, index).connect();
}

}  // namespace attngraph
