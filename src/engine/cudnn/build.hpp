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

/// The first configuration of cuDNN's heuristics, best first, that builds.
///
/// Errors: kUnsupported with the last reason of every heuristic when none does.
Result<BuiltPlan> build_plan(const Library& library, const OpGraph& graph, cudnnHandle_t handle);

}  // namespace attngraph::cudnn
