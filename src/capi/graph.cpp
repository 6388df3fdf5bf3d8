#include "attngraph/graph.hpp"

#include <memory>

#include "attngraph/json.hpp"
#include "attngraph/training.hpp"
#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/values.hpp"
#include "graph/fields.hpp"

using namespace attngraph;
using namespace attngraph::capi;

namespace {

Result<Tensor> tensor_of(const attngraph_tensor& given, const Graph& graph) {
  Tensor tensor;
  ATTNGRAPH_RETURN_IF_ERROR(read_enum(given.data_type, "tensor.data_type", tensor.dtype));
  if (given.rank < 0) return fail(Code::kInvalidGraph, "tensor.rank: is ", given.rank, "; must be 0 or more");
  if (given.rank > 0) ATTNGRAPH_RETURN_IF_ERROR(require(given.dims, "tensor.dims"));
  tensor.uid = given.uid == ATTNGRAPH_NONE ? graph.fresh_uid() : given.uid;
  if (given.name != nullptr) tensor.name = given.name;
  if (given.rank > 0) tensor.dims.assign(given.dims, given.dims + given.rank);
  if (given.rank > 0 && given.strides != nullptr)
    tensor.strides.assign(given.strides, given.strides + given.rank);
  if (given.ragged_offsets != ATTNGRAPH_NONE)
    tensor.ragged = Ragged{given.ragged_offsets, given.ragged_multiplier};
  tensor.alignment = given.alignment;
  tensor.is_virtual = given.is_virtual != 0;
  return tensor;
}

attngraph_tensor c_tensor(const Tensor& tensor) {
  attngraph_tensor c = ATTNGRAPH_TENSOR_INIT;
  c.uid = tensor.uid;
  c.name = tensor.name.c_str();
  c.data_type = c_value(tensor.dtype);
  c.rank = static_cast<int32_t>(tensor.dims.size());
  c.dims = tensor.dims.data();
  c.strides = tensor.strides.empty() ? nullptr : tensor.strides.data();
  if (tensor.ragged)
    c.ragged_offsets = tensor.ragged->offsets, c.ragged_multiplier = tensor.ragged->multiplier;
  c.alignment = tensor.alignment;
  c.is_virtual = tensor.is_virtual ? 1 : 0;
  return c;
}

Result<SdpaAttributes> attributes_of(const attngraph_attributes& given) {
  SdpaAttributes attributes;
  ATTNGRAPH_RETURN_IF_ERROR(read_enum(given.align, "attributes.align", attributes.band.align));
  ATTNGRAPH_RETURN_IF_ERROR(read_enum(given.stats_base, "attributes.stats_base", attributes.stats_base));
  if (given.has_scale != 0) attributes.scale = given.scale;
  attributes.softcap = given.softcap;
  attributes.dropout_p = given.dropout_p;
  attributes.band.left = optional_of(given.band_left);
  attributes.band.right = optional_of(given.band_right);
  attributes.max_total_q = optional_of(given.max_total_q);
  attributes.max_total_kv = optional_of(given.max_total_kv);
  attributes.max_seq_len_kv = optional_of(given.max_seq_len_kv);
  attributes.deterministic = given.deterministic != 0;
  return attributes;
}

Status set_attributes(const SdpaAttributes& given, SdpaAttributes& attributes) {
  attributes = given;
  return {};
}

/// Errors: kInvalidGraph when one is given that a merge does not have.
Status set_attributes(const SdpaAttributes& given, MergeAttributes& attributes) {
  SdpaAttributes rest = given;
  attributes.stats_base = std::exchange(rest.stats_base, StatsBase::kE);
  attributes.max_total_q = std::exchange(rest.max_total_q, std::nullopt);
  if (rest == SdpaAttributes{}) return {};
  return fail(Code::kInvalidGraph,
              "node.attributes: have more than stats_base and max_total_q; must be those ",
              "alone in merge_partials");
}

/// Errors: kInvalidGraph when the node has no such role, or it is taken.
template <class AnyNode>
Status set_port(const attngraph_port& given, AnyNode& node) {
  ATTNGRAPH_RETURN_IF_ERROR(require(given.role, "port.role"));
  if (given.uid == ATTNGRAPH_NONE) return {};
  Port* found = nullptr;
  ports(node, [&](Role role, Port& port, bool) {
    if (name_of(role) == given.role) found = &port;
  });
  if (found == nullptr)
    return fail(Code::kInvalidGraph, "port.role: is ", given.role, "; must be a role of ", op_of(node));
  if (found->has_value())
    return fail(Code::kInvalidGraph, "port ", given.role, ": is given as uid ", **found, " and as uid ",
                given.uid, "; must be given once");
  *found = given.uid;
  return {};
}

template <class AnyNode>
Status fill_node(const attngraph_node& given, AnyNode& node) {
  attngraph_attributes read = ATTNGRAPH_ATTRIBUTES_INIT;
  ATTNGRAPH_RETURN_IF_ERROR(read_struct(given.attributes, "node.attributes", read));
  const auto attributes = attributes_of(read);
  ATTNGRAPH_RETURN_IF_ERROR(attributes.status());
  if (given.name != nullptr) node.name = given.name;
  for (size_t i = 0; i < given.num_ports; ++i) ATTNGRAPH_RETURN_IF_ERROR(set_port(given.ports[i], node));
  return set_attributes(*attributes, node.attributes);
}

Gradients gradients_of(uint32_t bits) {
  Gradients wanted;
  wanted.q = (bits & ATTNGRAPH_GRADIENT_Q) != 0;
  wanted.k = (bits & ATTNGRAPH_GRADIENT_K) != 0;
  wanted.v = (bits & ATTNGRAPH_GRADIENT_V) != 0;
  wanted.bias = (bits & ATTNGRAPH_GRADIENT_BIAS) != 0;
  wanted.sink = (bits & ATTNGRAPH_GRADIENT_SINK) != 0;
  wanted.alibi_slopes = (bits & ATTNGRAPH_GRADIENT_ALIBI_SLOPES) != 0;
  return wanted;
}

}  // namespace

attngraph_status attngraph_graph_create(const char* name, attngraph_graph** graph,
                                        attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    auto created = std::make_unique<attngraph_graph>();
    if (name != nullptr) created->graph.name = name;
    *graph = created.release();
    return {};
  });
}

void attngraph_graph_destroy(attngraph_graph* graph) { delete graph; }

attngraph_status attngraph_graph_from_json(const char* json, size_t json_bytes, attngraph_graph** graph,
                                           attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(json, "json"));
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    auto parsed = parse(std::string(json, json_bytes));
    ATTNGRAPH_RETURN_IF_ERROR(parsed.status());
    *graph = new attngraph_graph{std::move(parsed).value()};
    return {};
  });
}

attngraph_status attngraph_graph_to_json(const attngraph_graph* graph, attngraph_text* json,
                                         attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(json, "json"));
    put(json, print(graph->graph));
    return {};
  });
}

attngraph_status attngraph_graph_add_tensor(attngraph_graph* graph, const attngraph_tensor* tensor,
                                            int64_t* uid, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(tensor, "tensor"));
    attngraph_tensor given = ATTNGRAPH_TENSOR_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_struct(tensor, "tensor", given));
    auto added = tensor_of(given, graph->graph);
    ATTNGRAPH_RETURN_IF_ERROR(added.status());
    const Uid added_uid = added->uid;
    graph->graph.tensors.push_back(std::move(added).value());
    if (uid != nullptr) *uid = added_uid;
    return {};
  });
}

attngraph_status attngraph_graph_tensor(const attngraph_graph* graph, int64_t uid, attngraph_tensor* tensor,
                                        attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    const Tensor* found = graph->graph.find(uid);
    if (found == nullptr)
      return fail(Code::kInvalidGraph, "uid: is ", uid, "; must be the uid of a tensor of the graph");
    return write_struct(c_tensor(*found), "tensor", tensor);
  });
}

attngraph_status attngraph_graph_add_node(attngraph_graph* graph, const attngraph_node* node,
                                          attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(node, "node"));
    attngraph_node given = ATTNGRAPH_NODE_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_struct(node, "node", given));
    ATTNGRAPH_RETURN_IF_ERROR(require(given.op, "node.op"));
    if (given.num_ports > 0) ATTNGRAPH_RETURN_IF_ERROR(require(given.ports, "node.ports"));
    std::optional<Node> added = node_of(given.op);
    if (!added) return fail(Code::kInvalidGraph, "node.op: is ", given.op, "; must be one of ", all_ops());
    ATTNGRAPH_RETURN_IF_ERROR(std::visit([&](auto& any) { return fill_node(given, any); }, *added));
    graph->graph.nodes.push_back(std::move(*added));
    return {};
  });
}

size_t attngraph_graph_num_nodes(const attngraph_graph* graph) {
  return graph == nullptr ? 0 : graph->graph.nodes.size();
}

int64_t attngraph_graph_port(const attngraph_graph* graph, size_t node, const char* role) {
  if (role == nullptr || node >= attngraph_graph_num_nodes(graph)) return ATTNGRAPH_NONE;
  int64_t uid = ATTNGRAPH_NONE;
  const auto visit_port = [&](Role candidate, const Port& port, bool) {
    if (port.has_value() && name_of(candidate) == role) uid = *port;
  };
  std::visit([&](const auto& any) { ports(any, visit_port); }, graph->graph.nodes[node]);
  return uid;
}

attngraph_status attngraph_graph_validate(const attngraph_graph* graph, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    return graph->graph.validate();
  });
}

attngraph_status attngraph_training_pair(const attngraph_graph* graph, uint32_t gradients,
                                         attngraph_graph** forward, attngraph_graph** backward,
                                         attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(forward, "forward"));
    ATTNGRAPH_RETURN_IF_ERROR(require(backward, "backward"));
    constexpr uint32_t kAllBits = 2 * ATTNGRAPH_GRADIENT_ALIBI_SLOPES - 1;
    if ((gradients & ~kAllBits) != 0)
      return fail(Code::kInvalidGraph, "gradients: is ", gradients, "; must be a sum of bits up to ",
                  kAllBits);
    auto pair = training_pair(graph->graph, gradients_of(gradients));
    ATTNGRAPH_RETURN_IF_ERROR(pair.status());
    auto first = std::make_unique<attngraph_graph>(attngraph_graph{std::move(pair->forward)});
    *backward = new attngraph_graph{std::move(pair->backward)};
    *forward = first.release();
    return {};
  });
}
