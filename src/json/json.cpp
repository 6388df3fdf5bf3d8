#include "attngraph/json.hpp"

#include <type_traits>
#include <utility>

#include "base/enum_names.hpp"
#include "base/json_writer.hpp"
#include "graph/fields.hpp"
#include "json/graph_reader.hpp"
#include "json/graph_writer.hpp"

namespace attngraph {
namespace {

using Style = JsonWriter::Style;

template <class T>
void write(JsonWriter& writer, const T& value);

template <class T>
void write(JsonWriter& writer, const std::optional<T>& value) {
  write(writer, *value);
}

template <class T>
void write(JsonWriter& writer, const std::vector<T>& values) {
  writer.open_array();
  for (const T& value : values) write(writer, value);
  writer.close();
}

/// One value: a struct by its fields, without the optional ones that have their default.
template <class T>
void write(JsonWriter& writer, const T& value) {
  if constexpr (HasFields<const T>) {
    const T defaults{};
    writer.open_object();
    for_each_field(fields(value), fields(defaults), [&](const auto& field, const auto& fallback) {
      if (field.presence == Presence::kOptional && field == fallback) return;
      writer.key(field.name);
      write(writer, field.value);
    });
    writer.close();
  } else if constexpr (std::is_enum_v<T>) {
    writer.value(name_of(value));
  } else {
    writer.value(value);
  }
}

template <class AnyNode>
void write_ports(JsonWriter& writer, const AnyNode& node, bool outputs) {
  writer.key(outputs ? "outputs" : "inputs");
  writer.open_object();
  ports(node, [&](Role role, const Port& port, bool is_output) {
    if (is_output != outputs || !port) return;
    writer.key(name_of(role));
    writer.value(*port);
  });
  writer.close();
}

template <class AnyNode>
void write_node(JsonWriter& writer, const AnyNode& node) {
  writer.open_object(Style::kLines);
  writer.key("op"), writer.value(op_of(node));
  if (!node.name.empty()) writer.key("name"), writer.value(node.name);
  write_ports(writer, node, false);
  write_ports(writer, node, true);
  if (!(node.attributes == decltype(node.attributes){}))
    writer.key("attributes"), write(writer, node.attributes);
  writer.close();
}

}  // namespace

Result<Graph> parse(const std::string& json) {
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document.ok()) return document.status();
  Graph graph;
  ATTNGRAPH_RETURN_IF_ERROR(read(document->root(), graph));
  return graph;
}

void write(JsonWriter& writer, const Graph& graph) {
  writer.open_object(Style::kLines);
  writer.key("format"), writer.value(kGraphFormat);
  writer.key("version"), writer.value(kGraphVersion);
  if (!graph.name.empty()) writer.key("name"), writer.value(graph.name);
  writer.key("tensors"), writer.open_array(Style::kLines);
  for (const Tensor& tensor : graph.tensors) write(writer, tensor);
  writer.close();
  writer.key("nodes"), writer.open_array(Style::kLines);
  for (const Node& node : graph.nodes) std::visit([&](const auto& any) { write_node(writer, any); }, node);
  writer.close();
  writer.close();
}

std::string print(const Graph& graph) {
  JsonWriter writer;
  write(writer, graph);
  return std::move(writer).take();
}

}  // namespace attngraph
