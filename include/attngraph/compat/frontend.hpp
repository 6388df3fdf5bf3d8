#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "attngraph/context.hpp"

/// What stands behind cudnn_frontend.h: a graph as code for cudnn-frontend describes it, its meaning as a
/// Graph, and the Program that runs it. Uids are those of its tensors.
///
/// Source: NVIDIA/cudnn-frontend 1.23.
namespace attngraph::compat {

/// One tensor as it was described.
struct Described {
  Tensor tensor;                ///< its dtype only where `foreign_type` is empty
  std::string foreign_type;     ///< a data type that attngraph lacks, in words
  std::optional<double> value;  ///< goes with the graph instead of memory
  bool is_host_scalar = false;  ///< read from host memory at each execute
  bool is_reordered = false;
};

/// A port by cudnn-frontend's name for it: "Q", "SEQ_LEN_KV", "dBias".
struct NamedPort {
  std::string name;
  Uid tensor = 0;
};

enum class PointwiseOp : uint8_t { kAdd, kMul, kDiv, kTanh, kTanhGradient, kOther };

struct Pointwise {
  std::string name;
  PointwiseOp op = PointwiseOp::kOther;
  std::vector<Uid> inputs;
  Uid output = 0;
};

/// What a score modifier did to the scores, recorded.
struct ScoreModifier {
  Uid score = 0;   ///< what it was given
  Uid result = 0;  ///< what it returned
  std::vector<Pointwise> operations;
};

/// An attention node's attributes, with cudnn-frontend's meaning.
struct FrontendAttributes {
  bool alibi_mask = false, padding_mask = false, deterministic = false;
  std::optional<double> attn_scale;  ///< absent: 1
  std::optional<double> dropout_probability;
  std::optional<int64_t> left_bound;  ///< counts the row's own key
  std::optional<int64_t> right_bound;
  Align diagonal_alignment = Align::kTopLeft;
  std::optional<int64_t> max_seq_len_kv, max_total_seq_len_q, max_total_seq_len_kv;
  std::optional<ScoreModifier> score_mod, score_mod_bprop;
};

enum class NodeKind : uint8_t { kForward, kBackward, kFp8, kPointwise };

struct FrontendNode {
  NodeKind kind = NodeKind::kForward;
  std::string name;
  std::vector<NamedPort> inputs, outputs;
  FrontendAttributes attributes;
};

struct FrontendGraph {
  std::string name;
  std::vector<Described> tensors;
  std::vector<FrontendNode> nodes;
  bool contract_dropout = false;  ///< drop the contract's elements, which are not cuDNN's
};

/// A scale that each execute brings in host memory.
struct HostScale {
  size_t node = 0;
  Uid uid = 0;
  DataType dtype = DataType::kF32;
};

/// ALiBi slopes of `heads` query heads, which cudnn-frontend derives from their number.
struct DerivedSlopes {
  Uid uid = 0;
  std::vector<float> values;
};

/// The meaning of a FrontendGraph: a graph, and what its user does not bind.
struct Translated {
  Graph graph;
  std::vector<DerivedSlopes> slopes;
  std::vector<HostScale> scales;  ///< the graph's own are 1 where these apply
};

/// Translates and validates.
///
/// Errors: kUnsupported naming what has no counterpart and why; kInvalidGraph for a graph that contradicts
///         itself.
ATTNGRAPH_API Result<Translated> translate(const FrontendGraph& graph);

using Pointers = std::unordered_map<Uid, void*>;

/// Where and how a Program is planned.
struct ProgramOptions {
  Context* context = nullptr;    ///< outlives the program
  std::optional<Target> target;  ///< absent: the current CUDA device
  std::optional<int> sm_count;   ///< of a CUDA target: plan for so many of its multiprocessors
  PlanOptions plan;
};

/// A translated graph, planned. Immutable and cheap to copy.
///
/// Thread: one program may run from many threads at once, each with its own workspace.
class ATTNGRAPH_API Program {
 public:
  /// Errors: those of Context::target_of and Context::plan.
  static Result<Program> make(Translated translated, const ProgramOptions& options);

  const Plan& plan() const;
  const Graph& graph() const;
  /// Bytes that execute may touch: the plan's workspace and derived slopes behind it, 256-byte aligned.
  int64_t workspace_bytes() const;
  /// Uids of the tensors that execute needs a pointer for, ascending.
  const std::vector<Uid>& uids() const;
  /// True when the graph alone, as JSON, says all that execute needs.
  bool is_graph_alone() const;

  /// Runs on `stream`; pointers of other uids are not looked at. A host scale is read before the call
  /// returns and planned for where it is new, through the context's cache.
  ///
  /// Errors: those of attngraph::execute.
  Status execute(const Pointers& pointers, void* workspace, void* stream) const;
  /// Adds what execute launches to the cudaGraph_t `cuda_graph`, which is empty, as a child graph; with
  /// `replaces` in place of the one that an earlier call added.
  ///
  /// Errors: kBadBinding for a graph that holds something else; those of execute; kBackend.
  Status record(const Pointers& pointers, void* workspace, void* cuda_graph, bool replaces) const;

 private:
  struct State;
  explicit Program(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace attngraph::compat
