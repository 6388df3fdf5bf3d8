#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attngraph/compat/cudnn_frontend/describe.hpp"
#include "attngraph/json.hpp"

struct CUstream_st;  // what a cudaStream_t points to
struct CUgraph_st;   // what a cudaGraph_t points to

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace detail {

/// Serves every graph that names no context. It is never destroyed: graphs may outlive whatever would.
inline attngraph::Context& default_context() {
  static attngraph::Context* const context = new attngraph::Context;
  return *context;
}

/// The stream of a cudnnHandle_t, by the cudnnGetStream of the <cudnn.h> that made the handle: it is found
/// where this template is used, so that this header needs no other.
template <class Handle>
error_t stream_of(const Handle& handle, void*& stream) {
  using Pointer = std::enable_if_t<sizeof(Handle) != 0, cudnnContext*>;
  const Pointer pointer = handle;
  if (pointer == nullptr)
    return {error_code_t::HANDLE_ERROR, "handle: is null; must be a cudnnHandle_t, whose stream is used"};
  CUstream_st* of_handle = nullptr;
  if (const auto code = cudnnGetStream(pointer, &of_handle); static_cast<int>(code) != 0)
    return {error_code_t::HANDLE_ERROR, "cudnnGetStream: returns " + std::to_string(static_cast<int>(code))};
  stream = of_handle;
  return {};
}
/// For a target in host memory.
inline error_t stream_of(std::nullptr_t, void*&) { return {}; }

}  // namespace detail

namespace graph {

/// What cudnn-frontend's code cannot say.
struct Attngraph_options {
  attngraph::Context* context = nullptr;    ///< outlives the graph; null: one for the whole program
  std::optional<attngraph::Target> target;  ///< absent: the current CUDA device when plans are made
  std::string engine;                       ///< take this engine alone; empty: the first that says yes
  bool contract_dropout = false;            ///< drop the contract's elements, which are not cuDNN's
};

/// An attention graph: cudnn-frontend's interface, attngraph's plans.
///
/// Thread: execute may be called from many threads at once, each with its own workspace.
class Graph {
 public:
  using Tensor_t = std::shared_ptr<Tensor_attributes>;
  using uid_t = Tensor_attributes::uid_t;
  using Variant_pack = std::unordered_map<uid_t, void*>;
  using Tensor_pack = std::unordered_map<Tensor_t, void*>;

  Graph& set_attngraph_options(Attngraph_options value) { return options_ = std::move(value), changed(); }

  Graph& set_name(const std::string& value) { return name_ = value, changed(); }
  Graph& set_io_data_type(DataType_t value) { return defaults_.io = value, changed(); }
  Graph& set_intermediate_data_type(DataType_t value) { return defaults_.intermediate = value, changed(); }
  /// Sums are in float32 whatever is asked for.
  Graph& set_compute_data_type(DataType_t) { return *this; }
  /// Shapes are those of the graph: plans are cached, and another shape is another graph.
  Graph& set_dynamic_shape_enabled(bool) { return *this; }
  Graph& set_override_shape_enabled(bool) { return *this; }
  Graph& set_sm_count(int32_t value) { return sm_count_ = value, changed(); }

  Tensor_t tensor(const Tensor_attributes& said) { return std::make_shared<Tensor_attributes>(said); }
  template <class Scalar>
  Tensor_t tensor(const Scalar& scalar, ScalarType type) {
    return std::make_shared<Tensor_attributes>(scalar, type);
  }
  Tensor_t tensor_like(const Tensor_t& like, const std::string& name = {}) {
    const Tensor_t made = tensor(*like);
    made->clear_uid().set_name(name);
    return made;
  }

  std::array<Tensor_t, 2> sdpa(Tensor_t q, Tensor_t k, Tensor_t v, SDPA_attributes attributes);
  std::array<Tensor_t, 3> sdpa_backward(Tensor_t q, Tensor_t k, Tensor_t v, Tensor_t o, Tensor_t dout,
                                        Tensor_t stats, SDPA_backward_attributes attributes);
  /// With fp8 scales: described, and refused by validate().
  std::array<Tensor_t, 4> sdpa_fp8(Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                   Tensor_t, Tensor_t, SDPA_fp8_attributes attributes) {
    const auto [o, stats, amax_s, amax_o] = add_fp8<4>(attributes.said);
    return {o, attributes.generate_stats ? stats : nullptr, amax_s, amax_o};
  }
  std::array<Tensor_t, 3> sdpa_fp8(Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                   SDPA_fp8_attributes attributes) {
    const auto [o, stats, amax_o] = add_fp8<3>(attributes.said);
    return {o, attributes.generate_stats ? stats : nullptr, amax_o};
  }
  std::array<Tensor_t, 7> sdpa_fp8_backward(Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            SDPA_fp8_backward_attributes attributes) {
    return add_fp8<7>(attributes.said);
  }
  std::array<Tensor_t, 6> sdpa_fp8_backward(Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            Tensor_t, Tensor_t, Tensor_t, Tensor_t, Tensor_t,
                                            SDPA_fp8_backward_attributes attributes) {
    return add_fp8<6>(attributes.said);
  }
  /// Inside a score modifier; in a graph of its own it is refused by validate().
  Tensor_t pointwise(Tensor_t a, Pointwise_attributes attributes) {
    return record(std::move(attributes), {std::move(a)});
  }
  Tensor_t pointwise(Tensor_t a, Tensor_t b, Pointwise_attributes attributes) {
    return record(std::move(attributes), {std::move(a), std::move(b)});
  }
  Tensor_t pointwise(Tensor_t a, Tensor_t b, Tensor_t c, Pointwise_attributes attributes) {
    return record(std::move(attributes), {std::move(a), std::move(b), std::move(c)});
  }

  /// Whether the graph says something that attngraph can keep; no engine is asked yet.
  error_t validate() const { return translated(describe()).error; }
  /// Fixes the graph, and gives every tensor its uid.
  error_t build_operation_graph(cudnnContext* = nullptr);
  /// Engines are asked in attngraph's order.
  error_t create_execution_plans(const std::vector<HeurMode_t>&) { return fixed(); }
  error_t check_support(cudnnContext* = nullptr) { return planned(); }
  error_t build_plans(cudnnContext*, BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE, bool = false) {
    return planned();
  }
  error_t build_plans(BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE, bool = false) {
    return planned();
  }
  error_t build(cudnnContext*, const std::vector<HeurMode_t>& modes,
                BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE, bool = false) {
    return build(modes);
  }
  error_t build(const std::vector<HeurMode_t>&, BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE,
                bool = false) {
    const error_t built = build_operation_graph();
    return built.is_bad() ? built : planned();
  }
  int64_t get_execution_plan_count() const { return program_ ? 1 : 0; }
  error_t get_plan_name(std::string& name) const;

  /// Finds a plan that fits.
  Graph& deselect_workspace_greater_than(int64_t bytes) { return max_workspace_bytes_ = bytes, replanned(); }
  /// Every plan can be recorded into a CUDA graph; another note is refused when plans are made.
  Graph& select_behavior_notes(const std::vector<BehaviorNote_t>& notes);

  error_t get_workspace_size(int64_t& bytes) const;
  /// -1 without a plan.
  int64_t get_workspace_size() const { return program_ ? program_->workspace_bytes() : -1; }

  /// Pointers of tensors that the graph lacks are not looked at.
  template <class Handle>
  error_t execute(const Handle& handle, const Variant_pack& pack, void* workspace) const {
    void* stream = nullptr;
    const error_t known = detail::stream_of(handle, stream);
    return known.is_bad() ? known : run(pack, workspace, stream);
  }
  template <class Handle>
  error_t execute(const Handle& handle, const Tensor_pack& pack, void* workspace) const {
    return execute(handle, by_uid(pack), workspace);
  }
  /// Pointers in the order of get_variant_pack_uids_sorted().
  template <class Handle>
  error_t execute(const Handle& handle, void** pointers, int count, void* workspace) const {
    const std::vector<int64_t> uids = get_variant_pack_uids_sorted();
    if (count < 0 || static_cast<std::size_t>(count) != uids.size())
      return {error_code_t::INVALID_VARIANT_PACK, "pointers: are " + std::to_string(count) + "; must be " +
                                                      std::to_string(uids.size()) + ", one a tensor"};
    Variant_pack pack;
    for (std::size_t i = 0; i < uids.size(); ++i) pack[uids[i]] = pointers[i];
    return execute(handle, pack, workspace);
  }
  /// Refused: a plan's workspace and checks are those of the shapes that it was made for.
  template <class Handle, class Pack>
  error_t execute(const Handle&, const Pack&, void*, const std::vector<int64_t>& override_uids,
                  const std::vector<std::vector<int64_t>>&, const std::vector<std::vector<int64_t>>&) const {
    return {error_code_t::GRAPH_NOT_SUPPORTED,
            "override_shapes: are given for " + std::to_string(override_uids.size()) +
                " tensors; must be those of the graph, build another one: plans are cached"};
  }
  std::vector<int64_t> get_variant_pack_uids_sorted() const {
    return program_ ? program_->uids() : std::vector<int64_t>();
  }

  /// Adds what execute launches to an empty CUDA graph, as a child graph.
  error_t populate_cuda_graph(cudnnContext*, const Variant_pack& pack, void* workspace,
                              CUgraph_st* into) const {
    return record_into(into, pack, workspace, false);
  }
  error_t populate_cuda_graph(cudnnContext*, const Tensor_pack& pack, void* workspace,
                              CUgraph_st* into) const {
    return record_into(into, by_uid(pack), workspace, false);
  }
  /// Replaces what populate_cuda_graph added.
  error_t update_cuda_graph(cudnnContext*, const Variant_pack& pack, void* workspace, CUgraph_st* in) const {
    return record_into(in, pack, workspace, true);
  }
  error_t update_cuda_graph(cudnnContext*, const Tensor_pack& pack, void* workspace, CUgraph_st* in) const {
    return record_into(in, by_uid(pack), workspace, true);
  }

  /// The graph as attngraph's JSON.
  error_t serialize(std::vector<uint8_t>& data) const;
  /// Reads and plans what serialize wrote; tensors are known by uid then.
  error_t deserialize(cudnnContext*, const std::vector<uint8_t>& data);
  /// A hash, equal for graphs that mean the same, uids and names included.
  std::size_t key() const;
  /// The meaning of the graph as JSON, or why there is none.
  std::string print() const;

  /// The plan, for what attngraph alone can tell; null before build_plans().
  const attngraph::Plan* plan() const { return program_ ? &program_->plan() : nullptr; }

 private:
  struct Translation {
    error_t error;
    std::optional<attngraph::compat::Translated> made;
  };

  Graph& changed() { return fixed_.reset(), replanned(); }
  Graph& replanned() { return program_.reset(), *this; }
  Tensor_t output(Said& said, const char* port);
  template <std::size_t Count>
  std::array<Tensor_t, Count> add_fp8(Said said);
  Tensor_t record(Pointwise_attributes attributes, std::vector<Tensor_t> inputs);
  static std::optional<Recorded> recorded(const AttentionScoreModifier_t& modify);
  void add(attngraph::compat::NodeKind kind, Said said);

  Describer describe() const;
  static Translation translated(const Describer& described);
  Translation meaning() const;
  error_t fixed() { return fixed_ ? error_t() : build_operation_graph(); }
  error_t planned();
  error_t plan_for(attngraph::compat::Translated translated);
  error_t run(const Variant_pack& pack, void* workspace, void* stream) const;
  error_t record_into(CUgraph_st* graph, const Variant_pack& pack, void* workspace, bool replaces) const;
  static Variant_pack by_uid(const Tensor_pack& pack);
  static error_t no_plan(const char* what);

  std::string name_;
  Defaults defaults_;
  Attngraph_options options_;
  std::optional<int32_t> sm_count_;
  std::optional<int64_t> max_workspace_bytes_;
  error_t refused_;
  std::vector<Built_node> nodes_;
  std::vector<Operation> operations_;
  std::optional<attngraph::compat::Translated> fixed_;
  std::optional<attngraph::compat::Program> program_;
};

}  // namespace graph
}  // namespace attngraph_compat
}  // namespace cudnn_frontend

#include "attngraph/compat/cudnn_frontend/graph_steps.hpp"
