#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/enum_names.hpp"
#include "base/message.hpp"
#include "compat/meaning.hpp"
#include "compat/score_modifier.hpp"
#include "graph/fields.hpp"

namespace attngraph::compat {
namespace {

struct RefusedPort {
  std::string_view name;
  const char* why;
};
constexpr RefusedPort kRefusedPorts[] = {
    {"Block_mask", "blocks of keys cannot be masked; a bias of -inf can mask them"},
    {"Dropout_mask", "dropout draws its own elements"},
    {"RNG_DUMP", "the elements that dropout draws are not written"},
    {"Max", "the greatest score of a row is not written; Stats, the logarithm of its sum, is"},
    {"Sum_exp", "the sum of a row is not written; Stats, its logarithm, is"}};

/// Small tensors are read an element at a time: only q, k, v and what has their shapes keeps the alignment
/// that was promised.
bool is_read_by_element(Role role) {
  switch (role) {
    case Role::kSeqLenQ:
    case Role::kSeqLenKv:
    case Role::kPageTableK:
    case Role::kPageTableV:
    case Role::kDropoutSeed:
    case Role::kDropoutOffset:
    case Role::kSink:
    case Role::kDsink:
      return true;
    default:
      return false;
  }
}

class Translator {
 public:
  explicit Translator(const FrontendGraph& theirs) : theirs_(theirs) {}

  Result<Translated> run() {
    made_.graph.name = theirs_.name;
    for (const Described& described : theirs_.tensors) {
      const Uid uid = described.tensor.uid;
      if (!described_.emplace(uid, &described).second)
        return fail(Code::kInvalidGraph, "tensor uid ", uid, " \"", described.tensor.name,
                    "\": has the uid of another tensor; must have its own");
    }
    ATTNGRAPH_RETURN_IF_ERROR(check_uids());
    for (const FrontendNode& node : theirs_.nodes)
      for (const NamedPort& port : node.inputs) read_.insert(port.tensor);
    for (size_t n = 0; n < theirs_.nodes.size(); ++n) ATTNGRAPH_RETURN_IF_ERROR(add_node(n));
    ATTNGRAPH_RETURN_IF_ERROR(made_.graph.validate());
    return std::move(made_);
  }

 private:
  /// Every uid that is named is that of a tensor; of pointwise nodes none is looked at.
  Status check_uids() const {
    std::vector<Uid> named;
    const auto name_all = [&](const std::optional<ScoreModifier>& modifier) {
      if (!modifier) return;
      for (const Pointwise& operation : modifier->operations)
        named.insert(named.end(), operation.inputs.begin(), operation.inputs.end());
    };
    for (const Described& described : theirs_.tensors)
      if (described.tensor.ragged) named.push_back(described.tensor.ragged->offsets);
    for (const FrontendNode& node : theirs_.nodes) {
      for (const NamedPort& port : node.inputs) named.push_back(port.tensor);
      for (const NamedPort& port : node.outputs) named.push_back(port.tensor);
      name_all(node.attributes.score_mod), name_all(node.attributes.score_mod_bprop);
    }
    for (const Uid uid : named)
      if (!described_.contains(uid))
        return fail(Code::kInvalidGraph, "uid ", uid, ": is named by a node; must be that of a tensor");
    return {};
  }

  std::string place(size_t n) const { return text("node ", n, " \"", theirs_.nodes[n].name, '"'); }

  Status add_node(size_t n) {
    switch (theirs_.nodes[n].kind) {
      case NodeKind::kForward:
        return add(n, SdpaForward{});
      case NodeKind::kBackward:
        return add(n, SdpaBackward{});
      case NodeKind::kFp8:
        return fail(Code::kUnsupported, place(n),
                    ": is attention with fp8 scales; must be in f32, f16 or bf16");
      case NodeKind::kPointwise:
        return fail(Code::kUnsupported, place(n),
                    ": is a pointwise operation; must be attention, or a score modifier's operation");
    }
    return {};
  }

  template <class AnyNode>
  Status add(size_t n, AnyNode made) {
    const FrontendNode& node = theirs_.nodes[n];
    made.name = node.name;
    made.attributes = attributes_of(node.attributes);
    ATTNGRAPH_RETURN_IF_ERROR(check_attributes(n));
    for (const bool is_output : {false, true})
      for (const NamedPort& port : is_output ? node.outputs : node.inputs)
        ATTNGRAPH_RETURN_IF_ERROR(connect(n, port, is_output, made));
    ATTNGRAPH_RETURN_IF_ERROR(set_dropout(n, made.attributes));
    ATTNGRAPH_RETURN_IF_ERROR(apply_score_modifiers(n, made));
    infer_stats(made);
    if (node.attributes.alibi_mask) made.alibi_slopes = add_slopes(made.q);
    if constexpr (std::is_same_v<AnyNode, SdpaForward>) infer_length(made);
    made_.graph.nodes.emplace_back(std::move(made));
    return {};
  }

  Status check_attributes(size_t n) const {
    const FrontendNode& node = theirs_.nodes[n];
    const FrontendAttributes& a = node.attributes;
    bool has_q = false, has_kv = false;
    for (const NamedPort& port : node.inputs) {
      has_q |= port.name == "SEQ_LEN_Q", has_kv |= port.name == "SEQ_LEN_KV";
      if (port.name == "Attn_scale" && a.attn_scale)
        return fail(Code::kInvalidGraph, place(n), ", attn_scale: is ", *a.attn_scale,
                    " and a tensor; must be one of them");
    }
    if (a.padding_mask != has_q || a.padding_mask != has_kv)
      return fail(Code::kInvalidGraph, place(n), ", padding_mask: is ", a.padding_mask ? "true" : "false",
                  " with SEQ_LEN_Q ", has_q ? "given" : "absent", " and SEQ_LEN_KV ",
                  has_kv ? "given" : "absent", "; must be true with both or false with neither");
    if (a.alibi_mask && a.diagonal_alignment == Align::kBottomRight)
      return fail(Code::kUnsupported, place(n),
                  ", alibi_mask: is true with diagonal_alignment BOTTOM_RIGHT; must be with TOP_LEFT, from "
                  "whose diagonal cuDNN counts the distance");
    return {};
  }

  template <class AnyNode>
  Status connect(size_t n, const NamedPort& port, bool is_output, AnyNode& made) {
    if (port.name == "Attn_scale") return set_scale(n, port.tensor, made.attributes);
    if ((port.name == "Seed" || port.name == "Offset") && !drops(n)) return {};
    const auto refuse = [&](const char* why) {
      return fail(Code::kUnsupported, place(n), ", ", port.name, ": is given; must be absent, ", why);
    };
    for (const RefusedPort& refused : kRefusedPorts)
      if (port.name == refused.name) return refuse(refused.why);
    const std::optional<Role> role = role_of(port.name);
    Port* found = nullptr;
    ports(made, [&](Role ours, Port& candidate, bool is_ours_output) {
      if (role == ours && is_output == is_ours_output) found = &candidate;
    });
    if (found == nullptr) return refuse("it has no counterpart");
    if (is_output && is_unasked(port)) return {};
    *found = port.tensor;
    return add_tensor(port.tensor, *role, text(place(n), ", ", port.name));
  }

  /// Their outputs are virtual unless marked. Stats and gradients that stay so and that no node reads were
  /// not asked for.
  bool is_unasked(const NamedPort& port) const {
    return port.name != "O" && described_.at(port.tensor)->tensor.is_virtual && !read_.contains(port.tensor);
  }

  Status add_tensor(Uid uid, Role role, const std::string& where) {
    if (!added_.insert(uid).second) return {};
    const Described& theirs = *described_.at(uid);
    const auto refuse = [&](const auto&... parts) {
      return fail(Code::kUnsupported, where, " (uid ", uid, " \"", theirs.tensor.name, "\"): ", parts...);
    };
    if (theirs.value || theirs.is_host_scalar)
      return refuse("is passed by value; must lie in the memory of the target");
    if (theirs.is_reordered) return refuse("is reordered; must have reordering NONE");
    if (!theirs.foreign_type.empty())
      return refuse("is of type ", theirs.foreign_type, "; must be of a type that attngraph has");
    const DataType type = theirs.tensor.dtype;
    if (type == DataType::kFp8E4m3 || type == DataType::kFp8E5m2)
      return refuse("is ", name_of(type), "; must be f32, f16 or bf16");
    if (role == Role::kBias && type == DataType::kBool)
      return refuse("is bool; must be a float type, a bias is added to the scores");
    const bool is_stats = role == Role::kStats && theirs.tensor.dims.empty();  // infer_stats()
    if (!is_stats && (theirs.tensor.dims.empty() || theirs.tensor.strides.empty()))
      return fail(Code::kInvalidGraph, where, " (uid ", uid, " \"", theirs.tensor.name, "\"): has ",
                  theirs.tensor.dims.size(), " dims and ", theirs.tensor.strides.size(),
                  " strides; must have both set");
    Tensor tensor = theirs.tensor;
    drop_unit_axes(role, tensor);
    if (is_read_by_element(role)) tensor.alignment = element_bytes(type);
    const std::optional<Ragged> ragged = tensor.ragged;
    made_.graph.tensors.push_back(std::move(tensor));
    // Offsets are vectors of integers, as lengths are.
    return ragged ? add_tensor(ragged->offsets, Role::kSeqLenQ, where + ", ragged_offset") : Status();
  }

  Status set_scale(size_t n, Uid uid, SdpaAttributes& ours) {
    const Described& scale = *described_.at(uid);
    if (scale.value) {
      ours.scale = *scale.value;
      return {};
    }
    if (!scale.is_host_scalar)
      return fail(Code::kUnsupported, place(n), ", Attn_scale (uid ", uid, " \"", scale.tensor.name,
                  "\"): lies in the memory of the target; must be passed by value, a plan depends on it");
    if (!scale.foreign_type.empty() || scale.tensor.dtype != DataType::kF32)
      return fail(Code::kUnsupported, place(n), ", Attn_scale (uid ", uid, " \"", scale.tensor.name,
                  "\"): is ", scale.foreign_type.empty() ? name_of(scale.tensor.dtype) : scale.foreign_type,
                  "; must be f32 to be passed by value");
    made_.scales.push_back({made_.graph.nodes.size(), uid, scale.tensor.dtype});
    return {};
  }

  bool drops(size_t n) const { return theirs_.nodes[n].attributes.dropout_probability.value_or(0) != 0; }

  Status set_dropout(size_t n, SdpaAttributes& ours) const {
    if (!drops(n)) return {};
    const double probability = *theirs_.nodes[n].attributes.dropout_probability;
    if (!theirs_.contract_dropout)
      return fail(
          Code::kUnsupported, place(n), ", dropout_probability: is ", probability,
          "; must be 0, as the elements that cuDNN drops are not known, or contract_dropout must be set, "
          "which drops others");
    ours.dropout_p = probability;
    return {};
  }

  template <class AnyNode>
  Status apply_score_modifiers(size_t n, AnyNode& made) {
    const FrontendAttributes& a = theirs_.nodes[n].attributes;
    const auto value_of = [&](Uid uid) { return described_.at(uid)->value; };
    const auto at_node = [&](const Status& status) {
      return Status(status.code(), text(place(n), ", ", status.message()));
    };
    constexpr bool kIsBackward = std::is_same_v<AnyNode, SdpaBackward>;
    if (a.score_mod.has_value() != a.score_mod_bprop.has_value() && kIsBackward)
      return fail(Code::kInvalidGraph, place(n), ", score_mod: is ", a.score_mod ? "given" : "absent",
                  " and score_mod_bprop is not; must be both or neither");
    if (!a.score_mod) return {};
    const Result<ScoreMeaning> meaning = meaning_of(*a.score_mod, value_of);
    if (!meaning.ok()) return at_node(meaning.status());
    made.attributes.softcap = meaning->softcap;
    if (kIsBackward)
      if (const Status gradient = check_gradient(*a.score_mod_bprop, *meaning, value_of); !gradient.ok())
        return at_node(gradient);
    if (!meaning->bias) return {};
    if (made.bias)
      return fail(Code::kUnsupported, place(n), ", score_mod: adds a bias beside Bias; must be one of them");
    made.bias = meaning->bias;
    return add_tensor(*made.bias, Role::kBias, text(place(n), ", score_mod"));
  }

  template <class AnyNode>
  void infer_stats(const AnyNode& made) {
    const Tensor* q = made.q ? made_.graph.find(*made.q) : nullptr;
    Tensor* stats = made.stats ? made_.graph.find(*made.stats) : nullptr;
    if (q == nullptr || stats == nullptr || !stats->dims.empty() || q->dims.size() != 4) return;
    stats->dims = {q->dims[0], q->dims[1], q->dims[2], 1};
    stats->strides = {q->dims[1] * q->dims[2], q->dims[2], 1, 1};
  }

  /// Without a length of their own, keys in pages are as many as the bias is for.
  void infer_length(SdpaForward& made) const {
    if (!made.page_table_k || !made.page_table_v || made.attributes.max_seq_len_kv || !made.bias) return;
    const Tensor* bias = made_.graph.find(*made.bias);
    if (bias != nullptr && bias->dims.size() == 4) made.attributes.max_seq_len_kv = bias->dims[3];
  }

  Port add_slopes(const Port& q) {
    const Tensor* tensor = q ? made_.graph.find(*q) : nullptr;
    const int64_t heads = tensor != nullptr && tensor->dims.size() == 4 ? tensor->dims[1] : 0;
    for (const DerivedSlopes& slopes : made_.slopes)
      if (static_cast<int64_t>(slopes.values.size()) == heads) return slopes.uid;
    Uid uid = made_.graph.fresh_uid();
    while (described_.contains(uid)) ++uid;
    made_.graph.tensors.push_back({uid, "alibi_slopes", DataType::kF32, {heads}, {1}, std::nullopt});
    made_.slopes.push_back({uid, alibi_slopes(heads)});
    return uid;
  }

  const FrontendGraph& theirs_;
  Translated made_;
  std::map<Uid, const Described*> described_;
  std::set<Uid> added_, read_;
};

}  // namespace

Result<Translated> translate(const FrontendGraph& graph) { return Translator(graph).run(); }

}  // namespace attngraph::compat
