#include "json/graph_reader.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "graph/fields.hpp"

namespace attngraph {
namespace {

/// The inputs or the outputs of a node, as one object of a file.
template <class AnyNode>
struct PortObject {
  AnyNode& node;
  bool is_output;
};

template <class AnyNode>
std::string roles_of(const PortObject<AnyNode>& object) {
  std::string names;
  ports(object.node, [&](Role role, const Port&, bool is_output) {
    if (is_output != object.is_output) return;
    if (!names.empty()) names += ", ";
    names += name_of(role);
  });
  return names;
}

template <class AnyNode>
Status read(JsonValue value, PortObject<AnyNode>& object) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object of roles and uids");
  for (const JsonValue member : value) {
    Port* known = nullptr;
    ports(object.node, [&](Role role, Port& port, bool is_output) {
      if (is_output == object.is_output && member.key() == name_of(role)) known = &port;
    });
    if (!known)
      return fail(Code::kInvalidGraph, member.path(), ": unknown role with value ", member.describe(),
                  "; must be one of ", roles_of(object), " in ", op_of(object.node));
    ATTNGRAPH_RETURN_IF_ERROR(read(member, *known));
  }
  return {};
}

template <class AnyNode>
Status read_node(JsonValue value, AnyNode& node) {
  std::string op;
  PortObject<AnyNode> inputs{node, false}, outputs{node, true};
  return read_object(value, std::tuple{Field{"op", op, Presence::kRequired}, Field{"name", node.name},
                                       Field{"inputs", inputs, Presence::kRequired},
                                       Field{"outputs", outputs, Presence::kRequired},
                                       Field{"attributes", node.attributes}});
}

/// Tensors by uid.
class UidIndex {
 public:
  /// Errors: kInvalidGraph when two of `graph`'s tensors have one uid.
  Status build(const Graph& graph, JsonValue tensors) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) uids_.emplace_back(graph.tensors[i].uid, i);
    std::sort(uids_.begin(), uids_.end());
    const auto twice = std::adjacent_find(uids_.begin(), uids_.end(),
                                          [](const auto& x, const auto& y) { return x.first == y.first; });
    if (twice == uids_.end()) return {};
    return tensors.at(std::next(twice)->second)
        .at("uid")
        .refuse("must be unique, ", tensors.at(twice->second).path(), " has it");
  }

  bool has(Uid uid) const {
    const auto found = std::lower_bound(uids_.begin(), uids_.end(), std::pair{uid, size_t{0}});
    return found != uids_.end() && found->first == uid;
  }

 private:
  std::vector<std::pair<Uid, size_t>> uids_;
};

constexpr const char* kMustBeUid = "must be the uid of a tensor";

Status check_offsets(const Graph& graph, const UidIndex& index, JsonValue tensors) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const std::optional<Ragged>& ragged = graph.tensors[i].ragged;
    if (ragged && !index.has(ragged->offsets))
      return tensors.at(i).at("ragged").at("offsets").refuse(kMustBeUid);
  }
  return {};
}

template <class AnyNode>
Status check_ports(const AnyNode& node, const UidIndex& index, JsonValue nodes, size_t i) {
  Status status;
  ports(node, [&](Role role, const Port& port, bool is_output) {
    if (status.ok() && port && !index.has(*port))
      status = nodes.at(i).at(is_output ? "outputs" : "inputs").at(name_of(role)).refuse(kMustBeUid);
  });
  return status;
}

}  // namespace

Status read(JsonValue value, Tensor& tensor) {
  ATTNGRAPH_RETURN_IF_ERROR(read_object(value, fields(tensor)));
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    if (tensor.dims[i] < 0) return value.at("dims").at(i).refuse("must be 0 or more");
  return {};
}

Status read(JsonValue value, Node& node) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object");
  const std::optional<JsonValue> op = value.find("op");
  if (!op) return fail(Code::kInvalidGraph, value.path(), ": no key \"op\"; must have op, inputs, outputs");
  const std::string_view name = op->kind() == JsonKind::kString ? op->text() : std::string_view();
  std::optional<Node> known = node_of(name);
  if (!known) return op->refuse("must be one of ", all_ops());
  node = std::move(*known);
  return std::visit([&](auto& any) { return read_node(value, any); }, node);
}

Status read(JsonValue value, Graph& graph) {
  ATTNGRAPH_RETURN_IF_ERROR(check_header(value, {kGraphFormat, kGraphVersion}));
  JsonHeader header;
  ATTNGRAPH_RETURN_IF_ERROR(read_object(
      value, std::tuple{Field{"format", header.format, Presence::kRequired},
                        Field{"version", header.version, Presence::kRequired}, Field{"name", graph.name},
                        Field{"tensors", graph.tensors, Presence::kRequired},
                        Field{"nodes", graph.nodes, Presence::kRequired}}));
  const JsonValue tensors = value.at("tensors"), nodes = value.at("nodes");
  UidIndex index;
  ATTNGRAPH_RETURN_IF_ERROR(index.build(graph, tensors));
  ATTNGRAPH_RETURN_IF_ERROR(check_offsets(graph, index, tensors));
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    ATTNGRAPH_RETURN_IF_ERROR(
        std::visit([&](const auto& node) { return check_ports(node, index, nodes, i); }, graph.nodes[i]));
  return {};
}

}  // namespace attngraph
