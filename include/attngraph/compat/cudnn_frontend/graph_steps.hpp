#pragma once

#include "attngraph/compat/cudnn_frontend/graph.hpp"

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace graph {

inline Graph::Tensor_t Graph::output(Said& said, const char* port) {
  const Tensor_t made = tensor(Tensor_attributes().set_name(said.name + "::" + port).set_is_virtual(true));
  set_port(said.outputs, port, made);
  return made;
}

inline Graph::Tensor_t Graph::record(Pointwise_attributes attributes, std::vector<Tensor_t> inputs) {
  const Tensor_t made =
      tensor(Tensor_attributes().set_name(attributes.name + "::OUT_0").set_is_virtual(true));
  operations_.push_back({std::move(attributes), std::move(inputs), made});
  changed();
  return made;
}

/// Calls the modifier with a graph that only records.
inline std::optional<Recorded> Graph::recorded(const AttentionScoreModifier_t& modify) {
  if (!modify) return std::nullopt;
  const auto graph = std::make_shared<Graph>();
  Recorded made;
  made.score = graph->tensor(Tensor_attributes().set_name("score").set_is_virtual(true));
  made.result = modify(graph, made.score);
  made.operations = graph->operations_;
  return made;
}

inline void Graph::add(attngraph::compat::NodeKind kind, Said said) {
  Built_node node;
  node.kind = kind;
  node.score_mod = recorded(said.score_mod);
  node.score_mod_bprop = recorded(said.score_mod_bprop);
  node.said = std::move(said);
  nodes_.push_back(std::move(node));
  changed();
}

inline std::array<Graph::Tensor_t, 2> Graph::sdpa(Tensor_t q, Tensor_t k, Tensor_t v,
                                                  SDPA_attributes attributes) {
  Said& said = attributes.said;
  set_port(said.inputs, "Q", std::move(q));
  set_port(said.inputs, "K", std::move(k));
  set_port(said.inputs, "V", std::move(v));
  const Tensor_t o = output(said, "O");
  const Tensor_t stats = attributes.generate_stats ? output(said, "Stats") : nullptr;
  add(attngraph::compat::NodeKind::kForward, std::move(said));
  return {o, stats};
}

inline std::array<Graph::Tensor_t, 3> Graph::sdpa_backward(Tensor_t q, Tensor_t k, Tensor_t v, Tensor_t o,
                                                           Tensor_t dout, Tensor_t stats,
                                                           SDPA_backward_attributes attributes) {
  Said& said = attributes.said;
  set_port(said.inputs, "Q", std::move(q));
  set_port(said.inputs, "K", std::move(k));
  set_port(said.inputs, "V", std::move(v));
  set_port(said.inputs, "O", std::move(o));
  set_port(said.inputs, "dO", std::move(dout));
  set_port(said.inputs, "Stats", std::move(stats));
  const std::array<Tensor_t, 3> gradients = {output(said, "dQ"), output(said, "dK"), output(said, "dV")};
  add(attngraph::compat::NodeKind::kBackward, std::move(said));
  return gradients;
}

template <std::size_t Count>
std::array<Graph::Tensor_t, Count> Graph::add_fp8(Said said) {
  std::array<Tensor_t, Count> outputs;
  for (Tensor_t& made : outputs) made = tensor(Tensor_attributes().set_is_virtual(true));
  add(attngraph::compat::NodeKind::kFp8, std::move(said));
  return outputs;
}

inline Describer Graph::describe() const {
  std::vector<Built_node> nodes = nodes_;
  for (const Operation& operation : operations_) {
    Built_node& node = nodes.emplace_back();
    node.kind = attngraph::compat::NodeKind::kPointwise;
    node.said.name = operation.attributes.name;
  }
  Describer described(nodes, defaults_);
  described.graph.name = name_;
  described.graph.contract_dropout = options_.contract_dropout;
  return described;
}

inline Graph::Translation Graph::translated(const Describer& described) {
  attngraph::Result<attngraph::compat::Translated> made = attngraph::compat::translate(described.graph);
  if (!made.ok()) return {detail::error_of(made.status(), error_code_t::GRAPH_NOT_SUPPORTED), std::nullopt};
  return {{}, std::move(made).value()};
}

inline error_t Graph::build_operation_graph(cudnnContext*) {
  changed();
  const Describer described = describe();
  Translation translation = translated(described);
  if (translation.error.is_good()) described.assign_uids();
  fixed_ = std::move(translation.made);
  return translation.error;
}

inline error_t Graph::planned() {
  if (program_) return {};
  if (const error_t error = fixed(); error.is_bad()) return error;
  return plan_for(*fixed_);
}

inline error_t Graph::plan_for(attngraph::compat::Translated translated) {
  if (refused_.is_bad()) return refused_;
  attngraph::compat::ProgramOptions options;
  options.context = options_.context != nullptr ? options_.context : &detail::default_context();
  options.target = options_.target;
  options.sm_count = sm_count_;
  options.plan.engine = options_.engine;
  options.plan.max_workspace_bytes = max_workspace_bytes_;
  attngraph::Result<attngraph::compat::Program> made =
      attngraph::compat::Program::make(std::move(translated), options);
  if (!made.ok()) return detail::error_of(made.status(), error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED);
  program_ = std::move(made).value();
  return {};
}

inline error_t Graph::no_plan(const char* what) {
  return {error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED,
          std::string(what) + ": there is no plan; must be called after build_plans() returned OK"};
}

inline error_t Graph::get_plan_name(std::string& name) const {
  if (!program_) return no_plan("get_plan_name");
  name.clear();
  for (const std::string& engine : program_->plan().engines()) name += (name.empty() ? "" : ", ") + engine;
  return {};
}

inline Graph& Graph::select_behavior_notes(const std::vector<BehaviorNote_t>& notes) {
  for (const BehaviorNote_t note : notes)
    if (note != BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API)
      refused_ = {error_code_t::GRAPH_NOT_SUPPORTED, "select_behavior_notes: has note " +
                                                         std::to_string(static_cast<int>(note)) +
                                                         "; must be SUPPORTS_CUDA_GRAPH_NATIVE_API alone"};
  return replanned();
}

inline error_t Graph::get_workspace_size(int64_t& bytes) const {
  if (!program_) return no_plan("get_workspace_size");
  bytes = program_->workspace_bytes();
  return {};
}

inline error_t Graph::run(const Variant_pack& pack, void* workspace, void* stream) const {
  if (!program_) return no_plan("execute");
  return detail::error_of(program_->execute(pack, workspace, stream), error_code_t::GRAPH_EXECUTION_FAILED);
}

inline error_t Graph::record_into(CUgraph_st* graph, const Variant_pack& pack, void* workspace,
                                  bool replaces) const {
  if (!program_) return no_plan("populate_cuda_graph");
  return detail::error_of(program_->record(pack, workspace, graph, replaces), error_code_t::CUDA_API_FAILED);
}

/// A tensor that was never part of a built graph has no uid, and nobody looks at its pointer.
inline Graph::Variant_pack Graph::by_uid(const Tensor_pack& pack) {
  Variant_pack pointers;
  for (const auto& [tensor, pointer] : pack)
    if (tensor != nullptr && tensor->has_uid()) pointers[tensor->get_uid()] = pointer;
  return pointers;
}

/// As it was fixed, or as it is now.
inline Graph::Translation Graph::meaning() const {
  return fixed_ ? Translation{{}, fixed_} : translated(describe());
}

inline std::string Graph::print() const {
  const Translation translation = meaning();
  return translation.made ? attngraph::print(translation.made->graph) : translation.error.get_message();
}

/// The JSON holds no scale that comes with each call: its node and uid are said beside it.
inline std::size_t Graph::key() const {
  const Translation translation = meaning();
  if (!translation.made) return std::hash<std::string>()(translation.error.get_message());
  std::string text = attngraph::print(translation.made->graph);
  for (const attngraph::compat::HostScale& scale : translation.made->scales)
    text += ' ' + std::to_string(scale.node) + ' ' + std::to_string(scale.uid);
  return std::hash<std::string>()(text);
}

inline error_t Graph::serialize(std::vector<uint8_t>& data) const {
  if (!program_) return no_plan("serialize");
  if (!program_->is_graph_alone())
    return {
        error_code_t::GRAPH_NOT_SUPPORTED,
        "serialize: the graph has alibi_mask or an attn_scale in host memory; must have neither, its JSON "
        "holds no values"};
  const std::string text = print();
  data.assign(text.begin(), text.end());
  return {};
}

inline error_t Graph::deserialize(cudnnContext*, const std::vector<uint8_t>& data) {
  attngraph::Result<attngraph::Graph> read = attngraph::parse(std::string(data.begin(), data.end()));
  if (!read.ok()) return detail::error_of(read.status(), error_code_t::UNSUPPORTED_GRAPH_FORMAT);
  changed();
  fixed_.emplace();
  fixed_->graph = std::move(read).value();
  return planned();
}

}  // namespace graph
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
