#include "cli/cudnn_frontend_file.hpp"

#include <algorithm>
#include <bit>
#include <charconv>

namespace attngraph::cli::frontend {

using attngraph::read;

Status read(JsonValue, Ignored&) { return {}; }

template <class T>
Status read(JsonValue value, Nullable<T>& out) {
  if (value.kind() == JsonKind::kNull) return {};
  return read(value, out.value.emplace());
}

Status read(JsonValue value, Float& out) {
  if (value.kind() != JsonKind::kString) return attngraph::read(value, out.value);
  const std::string_view digits = value.text();
  uint32_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (digits.size() != 8 || error != std::errc() || end != digits.data() + digits.size())
    return value.refuse("must be a number or the eight hexadecimal digits of a float");
  out.value = double{std::bit_cast<float>(bits)};
  return {};
}

Status read(JsonValue value, Reference& out) {
  if (value.kind() == JsonKind::kString) {
    out.key = value.text();
    return {};
  }
  if (value.kind() != JsonKind::kInteger) return value.refuse("must be the uid or the name of a tensor");
  out.key = std::to_string(value.integer());
  return {};
}

Status read(JsonValue value, Ports& out) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object of ports and tensors");
  for (const JsonValue member : value) {
    auto& [port, reference] = out.list.emplace_back(std::string(member.key()), Reference());
    ATTNGRAPH_RETURN_IF_ERROR(read(member, reference));
  }
  return {};
}

Status read(JsonValue value, Scalar& scalar) {
  return read_object(value, std::tuple{Field{"index", scalar.index}, Field{"value", scalar.value}});
}

Status read(JsonValue value, Tensor& t) {
  constexpr Presence kRequired = Presence::kRequired;
  return read_object(
      value,
      std::tuple{Field{"name", t.name}, Field{"data_type", t.data_type}, Field{"dim", t.dim, kRequired},
                 Field{"stride", t.stride, kRequired}, Field{"is_virtual", t.is_virtual},
                 Field{"pass_by_value", t.pass_by_value}, Field{"is_pass_by_value", t.is_pass_by_value},
                 Field{"reordering_type", t.reordering_type}, Field{"uid", t.uid},
                 Field{"uid_assigned", t.uid_assigned}, Field{"ragged_offset_uid", t.ragged_offset_uid},
                 Field{"ragged_offset_name", t.ragged_offset_name}});
}

Status read(JsonValue value, Node& n) {
  return read_object(value, std::tuple{Field{"tag", n.tag, Presence::kRequired},
                                       Field{"name", n.name},
                                       Field{"inputs", n.inputs},
                                       Field{"outputs", n.outputs},
                                       Field{"alibi_mask", n.alibi_mask},
                                       Field{"padding_mask", n.padding_mask},
                                       Field{"is_mxfp8", n.is_mxfp8},
                                       Field{"causal_mask", n.causal_mask},
                                       Field{"causal_mask_bottom_right", n.causal_mask_bottom_right},
                                       Field{"dropout_probability", n.dropout_probability},
                                       Field{"attn_scale_value", n.attn_scale_value},
                                       Field{"left_bound", n.left_bound},
                                       Field{"right_bound", n.right_bound},
                                       Field{"diagonal_alignment", n.diagonal_alignment},
                                       Field{"max_seq_len_kv", n.max_seq_len_kv},
                                       Field{"max_total_seq_len_q", n.max_total_seq_len_q},
                                       Field{"max_total_seq_len_kv", n.max_total_seq_len_kv},
                                       Field{"is_deterministic_algorithm", n.is_deterministic_algorithm},
                                       Field{"generate_stats", n.generate_stats},
                                       Field{"mma_core_mode", n.mma_core_mode},
                                       Field{"implementation", n.implementation},
                                       Field{"unfuse_fma", n.unfuse_fma},
                                       Field{"rescale_threshold", n.rescale_threshold}});
}

/// A node of another kind has members that are not listed here: its tag is what to speak of.
Status read(JsonValue value, std::vector<Node>& nodes) {
  if (value.kind() != JsonKind::kArray) return value.refuse("must be an array");
  for (const JsonValue element : value) {
    const std::optional<JsonValue> tag = element.find("tag");
    constexpr std::string_view kTags[] = {"SDPA", "SDPA_FWD", "SDPA_BWD"};  // SDPA_FWD: 1.18
    if (tag && (tag->kind() != JsonKind::kString || std::ranges::find(kTags, tag->text()) == std::end(kTags)))
      return tag->refuse("must be SDPA, SDPA_FWD or SDPA_BWD, other nodes have no counterpart");
    ATTNGRAPH_RETURN_IF_ERROR(read(element, nodes.emplace_back()));
  }
  return {};
}

Status read(JsonValue value, Context& c) {
  return read_object(
      value, std::tuple{Field{"name", c.name}, Field{"io_data_type", c.io_data_type},
                        Field{"intermediate_data_type", c.intermediate_data_type},
                        Field{"compute_data_type", c.compute_data_type}, Field{"sm_count", c.sm_count},
                        Field{"is_dynamic_shape_enabled", c.is_dynamic_shape_enabled},
                        Field{"is_override_shape_enabled", c.is_override_shape_enabled}});
}

Status read(JsonValue value, Tensors& tensors) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object of tensors");
  for (const JsonValue member : value) {
    TensorEntry& entry = tensors.list.emplace_back();
    entry.key = member.key();
    ATTNGRAPH_RETURN_IF_ERROR(read(member, entry.tensor));
  }
  return {};
}

Status read(JsonValue value, File& file) {
  return read_object(value, std::tuple{Field{"context", file.context, Presence::kRequired},
                                       Field{"nodes", file.nodes, Presence::kRequired},
                                       Field{"tensors", file.tensors, Presence::kRequired},
                                       Field{"json_version", file.json_version},
                                       Field{"cudnn_backend_version", file.cudnn_backend_version},
                                       Field{"cudnn_frontend_version", file.cudnn_frontend_version}});
}

Result<std::vector<std::string_view>> find_graphs(std::string_view text) {
  constexpr std::string_view kMark = "\"context\"";
  const Result<JsonDocument> whole = JsonDocument::parse(text);
  if (whole.ok()) return std::vector{text};
  std::vector<std::string_view> graphs;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t open = line.find('{'), close = line.rfind('}');
    if (line.find(kMark) == line.npos || open == line.npos || close == line.npos || close < open) continue;
    const std::string_view graph = line.substr(open, close - open + 1);
    if (std::find(graphs.begin(), graphs.end(), graph) == graphs.end()) graphs.push_back(graph);
  }
  if (graphs.empty())
    return fail(Code::kInvalidGraph, whole.status().message(), ", and no line holds a graph with ", kMark,
                "; must be a graph of cudnn-frontend or a log with one");
  return graphs;
}

}  // namespace attngraph::cli::frontend
