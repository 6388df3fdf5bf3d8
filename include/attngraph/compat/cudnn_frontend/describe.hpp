#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attngraph/compat/cudnn_frontend/attributes.hpp"

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace graph {

/// An operation that was recorded.
struct Operation {
  Pointwise_attributes attributes;
  std::vector<std::shared_ptr<Tensor_attributes>> inputs;
  std::shared_ptr<Tensor_attributes> output;
};

/// What a score modifier did.
struct Recorded {
  std::shared_ptr<Tensor_attributes> score, result;
  std::vector<Operation> operations;
};

/// A node of a graph: what was said, its ports complete.
struct Built_node {
  attngraph::compat::NodeKind kind = attngraph::compat::NodeKind::kForward;
  Said said;
  std::optional<Recorded> score_mod, score_mod_bprop;
};

/// What tensors that do not say it take from their graph.
struct Defaults {
  DataType_t io = DataType_t::NOT_SET, intermediate = DataType_t::NOT_SET;
};

/// Turns nodes into a FrontendGraph: every tensor once, under its uid or a fresh one.
class Describer {
 public:
  using Tensor_t = std::shared_ptr<Tensor_attributes>;

  Describer(const std::vector<Built_node>& nodes, const Defaults& defaults) : defaults_(defaults) {
    for (const Built_node& node : nodes) {
      for (const auto& [port, tensor] : node.said.inputs) collect(tensor);
      for (const auto& [port, tensor] : node.said.outputs) collect(tensor);
      collect(node.score_mod), collect(node.score_mod_bprop);
    }
    for (const Tensor_t& tensor : tensors_)
      if (tensor->has_uid()) used_.insert(tensor->get_uid());
    for (const Tensor_t& tensor : tensors_)
      uids_[tensor.get()] = tensor->has_uid() ? tensor->get_uid() : fresh();
    for (const Tensor_t& tensor : tensors_) graph.tensors.push_back(described(*tensor));
    for (const Built_node& node : nodes) graph.nodes.push_back(described(node));
  }

  /// Gives each tensor the uid that it has in `graph`.
  void assign_uids() const {
    for (const Tensor_t& tensor : tensors_) tensor->set_uid(uids_.at(tensor.get()));
  }

  attngraph::compat::FrontendGraph graph;

 private:
  void collect(const Tensor_t& tensor) {
    if (tensor == nullptr || !seen_.insert(tensor.get()).second) return;
    tensors_.push_back(tensor);
    collect(tensor->get_ragged_offset());
  }
  void collect(const std::optional<Recorded>& recorded) {
    if (!recorded) return;
    collect(recorded->score), collect(recorded->result);
    for (const Operation& operation : recorded->operations) {
      for (const Tensor_t& tensor : operation.inputs) collect(tensor);
      collect(operation.output);
    }
  }

  int64_t fresh() {
    while (!used_.insert(next_).second) ++next_;
    return next_;
  }
  int64_t uid_of(const Tensor_t& tensor) const { return tensor == nullptr ? 0 : uids_.at(tensor.get()); }

  attngraph::compat::Described described(const Tensor_attributes& theirs) const {
    const DataType_t fallback = theirs.get_is_virtual() ? defaults_.intermediate : defaults_.io;
    const DataType_t type = theirs.get_data_type() == DataType_t::NOT_SET ? fallback : theirs.get_data_type();
    const std::optional<attngraph::DataType> known = detail::type_of(type);
    attngraph::compat::Described ours;
    ours.tensor.uid = uids_.at(&theirs);
    ours.tensor.name = theirs.get_name();
    if (known) ours.tensor.dtype = *known;
    if (!known) ours.foreign_type = "DataType_t " + std::to_string(static_cast<int>(type));
    ours.tensor.dims = theirs.get_dim();
    ours.tensor.strides = theirs.get_stride();
    ours.tensor.alignment = theirs.get_alignment();
    ours.tensor.is_virtual = theirs.get_is_virtual();
    if (const Tensor_t offsets = theirs.get_ragged_offset())
      ours.tensor.ragged = attngraph::Ragged{uid_of(offsets), 1};
    ours.value = theirs.value();
    ours.is_host_scalar = theirs.get_is_pass_by_value() && !ours.value;
    ours.is_reordered = theirs.get_reordering_type() != TensorReordering_t::NONE;
    return ours;
  }

  std::vector<attngraph::compat::NamedPort> described(const Ports& ports) const {
    std::vector<attngraph::compat::NamedPort> ours;
    for (const auto& [name, tensor] : ports)
      if (tensor != nullptr) ours.push_back({name, uid_of(tensor)});
    return ours;
  }

  attngraph::compat::FrontendNode described(const Built_node& node) const {
    attngraph::compat::FrontendNode ours;
    ours.kind = node.kind;
    ours.name = node.said.name;
    ours.inputs = described(node.said.inputs);
    ours.outputs = described(node.said.outputs);
    ours.attributes = node.said.attributes;
    ours.attributes.score_mod = described(node.score_mod);
    ours.attributes.score_mod_bprop = described(node.score_mod_bprop);
    return ours;
  }

  std::optional<attngraph::compat::ScoreModifier> described(const std::optional<Recorded>& recorded) const {
    if (!recorded) return std::nullopt;
    attngraph::compat::ScoreModifier ours{uid_of(recorded->score), uid_of(recorded->result), {}};
    for (const Operation& operation : recorded->operations) {
      attngraph::compat::Pointwise& made = ours.operations.emplace_back();
      made.name = operation.attributes.name;
      made.op = op_of(operation.attributes.mode);
      for (const Tensor_t& tensor : operation.inputs) made.inputs.push_back(uid_of(tensor));
      made.output = uid_of(operation.output);
    }
    return ours;
  }

  static attngraph::compat::PointwiseOp op_of(PointwiseMode_t mode) {
    using attngraph::compat::PointwiseOp;
    switch (mode) {
      case PointwiseMode_t::ADD:
        return PointwiseOp::kAdd;
      case PointwiseMode_t::MUL:
        return PointwiseOp::kMul;
      case PointwiseMode_t::DIV:
        return PointwiseOp::kDiv;
      case PointwiseMode_t::TANH_FWD:
        return PointwiseOp::kTanh;
      case PointwiseMode_t::TANH_BWD:
        return PointwiseOp::kTanhGradient;
      default:
        return PointwiseOp::kOther;
    }
  }

  Defaults defaults_;
  std::vector<Tensor_t> tensors_;  ///< each once, in the order of ports
  std::set<const Tensor_attributes*> seen_;
  std::set<int64_t> used_;
  std::unordered_map<const Tensor_attributes*, int64_t> uids_;
  int64_t next_ = 1;
};

}  // namespace graph
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
