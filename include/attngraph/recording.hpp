#pragma once

#include <memory>
#include <utility>

#include "attngraph/execute.hpp"

namespace attngraph {

/// One call of execute, recorded for being repeated: with the same pointers, sizes and workspace, and
/// whatever data lie there then. On a device its launches are one CUDA graph, which the host launches in less
/// time than several kernels, or one of cuDNN's.
///
/// Thread: one launch at a time, as all of them have one workspace.
class ATTNGRAPH_API Recording {
 public:
  /// Checks the call, records it and runs nothing. Keeps the plan and the pointers; not their memory.
  ///
  /// Errors: those of execute; kUnsupported for a plan with validate_bindings on a device, which waits.
  static Result<Recording> make(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes,
                                Workspace workspace);
  static Result<Recording> make(const Bindings& bindings, Workspace workspace);

  /// What execute would do; allocates nothing and takes no lock. On a host and in a stream capture it does
  /// execute.
  Status launch(void* stream = nullptr) const;

 private:
  struct State;
  explicit Recording(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace attngraph
