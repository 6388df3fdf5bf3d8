#include "cli/import.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/message.hpp"
#include "compat/meaning.hpp"
#include "graph/add.hpp"
#include "graph/fields.hpp"

namespace attngraph::cli {
namespace {

DataType type_of(frontend::Type type) {
  switch (type) {
    case frontend::Type::kFloat:
      return DataType::kF32;
    case frontend::Type::kHalf:
      return DataType::kF16;
    case frontend::Type::kBfloat16:
      return DataType::kBf16;
    case frontend::Type::kInt32:
      return DataType::kI32;
    case frontend::Type::kInt64:
      return DataType::kI64;
    case frontend::Type::kBoolean:
      return DataType::kBool;
    case frontend::Type::kFp8E4m3:
      return DataType::kFp8E4m3;
    case frontend::Type::kFp8E5m2:
      return DataType::kFp8E5m2;
  }
  return DataType::kF32;
}

class Importer {
 public:
  Importer(const frontend::File& file, const ImportOptions& options) : file_(file), options_(options) {}

  Result<Imported> run() {
    imported_.graph.name = file_.context.name.value.value_or("");
    if (file_.tensors.value)
      for (const frontend::TensorEntry& entry : file_.tensors.value->list)
        theirs_.emplace(entry.key, &entry.tensor);
    for (const auto& [key, tensor] : theirs_)
      if (tensor->uid_assigned) reserved_ = std::max(reserved_, tensor->uid);
    if (file_.nodes.value)
      for (size_t i = 0; i < file_.nodes.value->size(); ++i) ATTNGRAPH_RETURN_IF_ERROR(add_node(i));
    settle_virtual_tensors();
    ATTNGRAPH_RETURN_IF_ERROR(imported_.graph.validate());
    return std::move(imported_);
  }

 private:
  const frontend::Node& node_at(size_t i) const { return (*file_.nodes.value)[i]; }

  Status add_node(size_t i) {
    const frontend::Node& node = node_at(i);
    if (node.is_mxfp8) return fail(Code::kInvalidGraph, "nodes[", i, "].is_mxfp8: true; must be false");
    return node.tag == "SDPA_BWD" ? add(i, SdpaBackward{}) : add(i, SdpaForward{});
  }

  template <class AnyNode>
  Status add(size_t i, AnyNode made) {
    const frontend::Node& node = node_at(i);
    made.name = node.name.value.value_or("");
    for (const bool is_output : {false, true})
      for (const auto& [name, reference] : ports_of(node, is_output)) {
        const std::string where = text("nodes[", i, "].", is_output ? "outputs." : "inputs.", name);
        if (name == "Attn_scale") continue;
        ATTNGRAPH_RETURN_IF_ERROR(connect(made, {where, name, is_output}, reference.key));
      }
    ATTNGRAPH_RETURN_IF_ERROR(set_attributes(i, made.attributes));
    if (node.alibi_mask) made.alibi_slopes = add_slopes(made.q);
    complete(made);
    ATTNGRAPH_RETURN_IF_ERROR(pack(node, made));
    imported_.graph.nodes.emplace_back(std::move(made));
    return {};
  }

  struct PortPlace {
    std::string where;
    const std::string& name;
    bool is_output;
  };

  static const std::vector<std::pair<std::string, frontend::Reference>>& ports_of(const frontend::Node& node,
                                                                                  bool is_output) {
    static const std::vector<std::pair<std::string, frontend::Reference>> kNone;
    const auto& ports = is_output ? node.outputs.value : node.inputs.value;
    return ports ? ports->list : kNone;
  }

  template <class AnyNode>
  Status connect(AnyNode& made, const PortPlace& place, const std::string& key) {
    const std::optional<Role> known = compat::role_of(place.name);
    Port* found = nullptr;
    ports(made, [&](Role role, Port& port, bool is_output) {
      if (role == known && is_output == place.is_output) found = &port;
    });
    if (found == nullptr)
      return fail(Code::kInvalidGraph, place.where, ": is given; must be absent, it has no counterpart in ",
                  op_of(made));
    const auto tensor = tensor_for(key, *known, place.where);
    ATTNGRAPH_RETURN_IF_ERROR(tensor.status());
    *found = *tensor;
    return {};
  }

  /// Our tensor for theirs, made when it is first named.
  Result<Uid> tensor_for(const std::string& key, Role role, const std::string& where) {
    if (const auto known = ours_.find(key); known != ours_.end()) return known->second;
    const auto entry = theirs_.find(key);
    if (entry == theirs_.end())
      return fail(Code::kInvalidGraph, where, ": ", key, " is no key of tensors; must be one");
    const frontend::Tensor& their = *entry->second;
    const std::string path = "tensors." + key;
    if (their.is_pass_by_value)
      return fail(Code::kInvalidGraph, path, ".is_pass_by_value: true; must be false, ", role,
                  " is read from memory");
    if (const auto& order = their.reordering_type.value; order && *order != "NONE")
      return fail(Code::kInvalidGraph, path, ".reordering_type: ", *order, "; must be NONE");
    const auto& fallback =
        their.is_virtual ? file_.context.intermediate_data_type : file_.context.io_data_type;
    const auto& type = their.data_type.value ? their.data_type.value : fallback.value;
    if (!type)
      return fail(Code::kInvalidGraph, path,
                  ".data_type: null, and the context has none; must be given there");
    Tensor tensor;
    tensor.uid = their.uid_assigned ? their.uid : fresh_uid();
    tensor.name = their.name;
    tensor.dtype = type_of(*type);
    tensor.dims = their.dim;
    tensor.strides = their.stride;
    tensor.is_virtual = their.is_virtual;
    compat::drop_unit_axes(role, tensor);
    const Uid uid = tensor.uid;
    ours_.emplace(key, uid);
    imported_.graph.tensors.push_back(std::move(tensor));
    if (their.ragged_offset_uid) ATTNGRAPH_RETURN_IF_ERROR(add_offsets(uid, their, path));
    return uid;
  }

  /// Offsets are among the tensors only when a node reads them, too; else their type is not in the file.
  Status add_offsets(Uid tensor, const frontend::Tensor& their, const std::string& path) {
    const std::string by_uid = std::to_string(*their.ragged_offset_uid);
    const std::string& key =
        theirs_.contains(by_uid) || their.ragged_offset_name.empty() ? by_uid : their.ragged_offset_name;
    if (!ours_.contains(key) && !theirs_.contains(key)) {
      if (!options_.offsets)
        return fail(Code::kInvalidGraph, path, ".ragged_offset_uid: ", by_uid,
                    " names offsets whose type is not in this format; must be given by --offsets i32 or i64");
      const Uid uid = *their.ragged_offset_uid != 0 ? *their.ragged_offset_uid : fresh_uid();
      const std::vector<int64_t>& dims = imported_.graph.find(tensor)->dims;
      const int64_t batch = dims.empty() ? 0 : dims[0];
      imported_.graph.tensors.push_back(
          {uid, their.ragged_offset_name, *options_.offsets, {batch + 1}, {1}, std::nullopt});
      ours_.emplace(key, uid);
    }
    const auto offsets = tensor_for(key, Role::kCuSeqLenQ, path + ".ragged_offset_uid");
    ATTNGRAPH_RETURN_IF_ERROR(offsets.status());
    imported_.graph.find(tensor)->ragged = Ragged{*offsets, 1};
    return {};
  }

  Status set_attributes(size_t i, SdpaAttributes& a) {
    const frontend::Node& node = node_at(i);
    const auto scale = scale_of(i);
    ATTNGRAPH_RETURN_IF_ERROR(scale.status());
    compat::FrontendAttributes theirs;
    theirs.attn_scale = *scale;
    if (node.diagonal_alignment == frontend::Diagonal::kBottomRight || node.causal_mask_bottom_right)
      theirs.diagonal_alignment = Align::kBottomRight;
    theirs.left_bound = node.left_bound.value;
    theirs.right_bound = node.right_bound.value;
    if (node.causal_mask || node.causal_mask_bottom_right) theirs.right_bound = 0;
    theirs.max_seq_len_kv = node.max_seq_len_kv.value;
    theirs.max_total_seq_len_q = node.max_total_seq_len_q.value;
    theirs.max_total_seq_len_kv = node.max_total_seq_len_kv.value;
    theirs.deterministic = node.is_deterministic_algorithm;
    a = compat::attributes_of(theirs);
    if (const auto& p = node.dropout_probability.value; p && p->value != 0) {
      a.dropout_p = p->value;
      imported_.notes.push_back(text("nodes[", i,
                                     "].dropout_probability: the elements that are dropped differ ",
                                     "from cuDNN's, whose random numbers are not published"));
    }
    bool has_lengths = false;
    for (const auto& [name, reference] : ports_of(node, false))
      has_lengths |= name == "SEQ_LEN_Q" || name == "SEQ_LEN_KV";
    if (node.padding_mask != has_lengths)
      return fail(Code::kInvalidGraph, "nodes[", i, "].padding_mask: ", node.padding_mask ? "true" : "false",
                  has_lengths ? " with" : " without", " SEQ_LEN_Q or SEQ_LEN_KV; must be ",
                  has_lengths ? "true" : "false", " then");
    return {};
  }

  Result<std::optional<double>> scale_of(size_t i) const {
    const frontend::Node& node = node_at(i);
    if (node.attn_scale_value.value) return std::optional(node.attn_scale_value.value->value);
    for (const auto& [name, reference] : ports_of(node, false)) {
      if (name != "Attn_scale") continue;
      const auto entry = theirs_.find(reference.key);
      if (entry != theirs_.end() && entry->second->pass_by_value.value)
        return std::optional(entry->second->pass_by_value.value->value.value);
      if (options_.scale) return options_.scale;
      return fail(Code::kInvalidGraph, "nodes[", i, "].inputs.Attn_scale: ", reference.key,
                  " is a tensor whose value is not in this format; must be given by --scale");
    }
    return std::optional<double>();
  }

  Port add_slopes(const Port& q) {
    const Tensor* tensor = q ? imported_.graph.find(*q) : nullptr;
    const int64_t heads = tensor != nullptr && tensor->dims.size() == 4 ? tensor->dims[1] : 0;
    const Uid uid = fresh_uid();
    imported_.graph.tensors.push_back({uid, "alibi_slopes", DataType::kF32, {heads}, {1}, std::nullopt});
    imported_.notes.push_back(text("tensor ", uid,
                                   " (alibi_slopes): cuDNN computes these from the number of ",
                                   "heads, 2^(-8 (h + 1) / heads) when that is a power of two; bind them"));
    return uid;
  }

  /// What building a graph did to its tensors is undone, and what it had not yet inferred is filled in.
  template <class AnyNode>
  void complete(AnyNode& made) {
    const auto dims_of = [&](const Port& port) -> std::vector<int64_t> {
      const Tensor* tensor = port ? imported_.graph.find(*port) : nullptr;
      return tensor != nullptr && tensor->dims.size() == 4 ? tensor->dims : std::vector<int64_t>();
    };
    const std::vector<int64_t> q = dims_of(made.q), o = dims_of(made.o);
    if (!q.empty()) undo_transpose(made.k, q[3]);
    if (!o.empty()) undo_transpose(made.v, o[3]);
    const std::vector<int64_t> v = dims_of(made.v);
    const auto infer = [&](const Port& port, std::vector<int64_t> dims) {
      Tensor* tensor = port ? imported_.graph.find(*port) : nullptr;
      if (tensor != nullptr && tensor->dims.empty()) tensor->dims = std::move(dims);
    };
    if (q.empty() || v.empty()) return;
    infer(made.o, {q[0], q[1], q[2], v[3]});
    infer(made.stats, {q[0], q[1], q[2], 1});
    if constexpr (std::is_same_v<AnyNode, SdpaBackward>)
      infer(made.dq, q), infer(made.dk, dims_of(made.k)), infer(made.dv, v);
  }

  /// cudnn-frontend 1.18, which PyTorch 2.11 brings, does not write that a tensor is ragged. PyTorch gives
  /// such a one this batch stride.
  template <class AnyNode>
  Status pack(const frontend::Node& node, AnyNode& made) {
    constexpr int64_t kPackedStride = std::numeric_limits<int32_t>::max();
    constexpr Role kPacked[] = {Role::kQ,     Role::kK,  Role::kV,  Role::kO, Role::kDo,
                                Role::kStats, Role::kDq, Role::kDk, Role::kDv};
    std::vector<Uid> uids;
    ports(made, [&](Role role, const Port& port, bool) {
      if (port && std::ranges::find(kPacked, role) != std::end(kPacked)) uids.push_back(*port);
    });
    for (const Uid uid : uids) {
      const Tensor& tensor = *imported_.graph.find(uid);
      if (tensor.ragged || tensor.dims.empty()) continue;
      if (options_.packed && node.padding_mask) {
        add_fresh_offsets(uid);
      } else if (!tensor.strides.empty() && tensor.strides[0] == kPackedStride && tensor.dims[0] > 1) {
        return fail(Code::kInvalidGraph, "tensor ", tensor.name, ": has batch stride ", kPackedStride,
                    ", which PyTorch gives packed tensors; must be converted with --packed, as this ",
                    "version of the format leaves out their offsets");
      }
    }
    return {};
  }

  void add_fresh_offsets(Uid uid) {
    const Tensor& tensor = *imported_.graph.find(uid);
    const Ragged ragged{fresh_uid(), 1};
    Tensor offsets{
        ragged.offsets, tensor.name + " offsets", *options_.offsets, {tensor.dims[0] + 1}, {1}, {}};
    imported_.graph.tensors.push_back(std::move(offsets));
    imported_.graph.find(uid)->ragged = ragged;
  }

  /// k or v whose last two axes changed places; told apart by the innermost stride where both extents are
  /// equal.
  void undo_transpose(const Port& port, int64_t dim) {
    Tensor* tensor = port ? imported_.graph.find(*port) : nullptr;
    if (tensor == nullptr || tensor->dims.size() != 4 || tensor->strides.size() != 4) return;
    const bool by_extent = tensor->dims[3] != dim && tensor->dims[2] == dim;
    const bool by_stride =
        tensor->dims[2] == tensor->dims[3] && tensor->strides[2] == 1 && tensor->strides[3] != 1;
    if (!by_extent && !by_stride) return;
    std::swap(tensor->dims[2], tensor->dims[3]);
    std::swap(tensor->strides[2], tensor->strides[3]);
  }

  /// Their outputs are virtual unless marked; stats that nobody reads were not asked for, other outputs are
  /// bound.
  void settle_virtual_tensors() {
    Graph& graph = imported_.graph;
    std::map<Uid, bool> is_read;
    for (const Node& node : graph.nodes)
      std::visit(
          [&](const auto& any) {
            ports(any, [&](Role, const Port& port, bool is_output) {
              if (port && !is_output) is_read[*port] = true;
            });
          },
          node);
    for (Node& node : graph.nodes)
      if (auto* forward = std::get_if<SdpaForward>(&node); forward != nullptr && forward->stats)
        if (graph.find(*forward->stats)->is_virtual && !is_read[*forward->stats]) {
          std::erase_if(graph.tensors, [&](const Tensor& t) { return t.uid == *forward->stats; });
          forward->stats.reset();
        }
    for (Tensor& tensor : graph.tensors) tensor.is_virtual &= is_read[tensor.uid];
  }

  /// Beyond every uid of the file.
  Uid fresh_uid() { return reserved_ = std::max(reserved_ + 1, imported_.graph.fresh_uid()); }

  const frontend::File& file_;
  const ImportOptions& options_;
  Imported imported_;
  std::map<std::string, const frontend::Tensor*, std::less<>> theirs_;
  std::map<std::string, Uid, std::less<>> ours_;  ///< by their key
  Uid reserved_ = 0;
};

}  // namespace

Result<Imported> import_graph(const frontend::File& file, const ImportOptions& options) {
  return Importer(file, options).run();
}

}  // namespace attngraph::cli
