#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cudnn/descriptor.hpp"
#include "engine/cudnn/op_graph.hpp"

namespace attngraph::cudnn {

/// An operation graph as cuDNN's descriptors.
class BackendGraph {
 public:
  /// Finalizes every tensor and operation, then the graph. A null handle will do for that, so that it can
  /// be tested without a device; planning needs one.
  ///
  /// Errors: kUnsupported or kBackend naming the descriptor.
  static Result<BackendGraph> make(const Library& library, const OpGraph& graph, cudnnHandle_t handle);

  const Descriptor& descriptor() const { return graph_; }

 private:
  explicit BackendGraph(const Library& library)
      : graph_(library, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the operation graph") {}
  Status add_tensor(const Library& library, const OpGraph& graph, size_t index);
  Status add(const Library& library, const Op& op, const std::string& name);
  Status add_matmul(const Library& library, const Op& op, const std::string& name);
  Status add_reduction(const Library& library, const Op& op, const std::string& name);
  Status add_reshape(const Library& library, const Op& op, const std::string& name);
  Status add_pointwise(const Library& library, const Op& op, const std::string& name);
  Descriptor& add_op(const Library& library, cudnnBackendDescriptorType_t type, const std::string& name);
  Descriptor& add_mode(const Library& library, cudnnBackendDescriptorType_t type, const std::string& name);
  const Descriptor& tensor(int index) const { return tensors_[static_cast<size_t>(index)]; }

  std::vector<Descriptor> tensors_, modes_, ops_;
  Descriptor graph_;
};

/// The id of a tensor in a variant pack.
constexpr int64_t unique_id(size_t tensor) { return static_cast<int64_t>(tensor) + 1; }

/// A plan of cuDNN's, ready to run.
struct BuiltPlan {
  Descriptor plan;
  int64_t workspace_bytes = 0;
  std::string engine;  ///< "engine 8, TILE_M 3, ..." for explain
};

/// The engine configurations that cuDNN's heuristics propose for a graph, the promising ones first, each
/// once.
class Proposals {
 public:
  /// Errors: those of BackendGraph.
  static Result<Proposals> make(const Library& library, const OpGraph& graph, cudnnHandle_t handle);

  /// Asks for all of them.
  ///
  /// Errors: kUnsupported with the reason of every heuristic when none proposes anything.
  Result<int64_t> count();
  /// Errors: kUnsupported for one that does not build, or that there is not.
  Result<BuiltPlan> build(int64_t index);
  /// The first that builds; a heuristic is asked when those before it have none.
  ///
  /// Errors: kUnsupported with all reasons when none does.
  Result<BuiltPlan> build_first();

 private:
  struct Config {
    Descriptor descriptor;
    std::string engine;  ///< as in BuiltPlan
  };

  Proposals(const Library& library, BackendGraph graph, cudnnHandle_t handle)
      : library_(&library), graph_(std::move(graph)), handle_(handle) {}
  /// Adds what the next heuristic proposes; false: there is none.
  bool ask_next();
  Status ask(cudnnBackendHeurMode_t mode);
  void note(const Status& status);
  Status refusal(const char* what) const;
  Result<BuiltPlan> build(const Config& config) const;

  const Library* library_;
  BackendGraph graph_;
  cudnnHandle_t handle_;
  std::vector<Config> configs_;
  size_t num_asked_ = 0;  ///< heuristics
  std::string reasons_;
  Code code_ = Code::kUnsupported;  ///< of the gravest reason
};

}  // namespace attngraph::cudnn
