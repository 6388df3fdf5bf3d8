#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attngraph/execute.hpp"
#include "cli/case.hpp"
#include "cli/guarded.hpp"
#include "cli/output_bits.hpp"
#include "cli/step_data.hpp"

namespace attngraph::cli {

/// What unwritten memory holds in a run. The guards differ, so that a result that depends on what
/// lies beside a buffer differs between the runs.
struct Poison {
  std::byte content, guard;
};
inline constexpr Poison kNanPoison = {std::byte{0xFF}, std::byte{0xFF}};  // a NaN in every float type
inline constexpr Poison kZeroPoison = {std::byte{0x00}, std::byte{0x3C}};

/// The memory of one run of a step: storages and workspace, each between guards.
class StepMemory {
 public:
  StepMemory(const StepData& data, const Poison& poison) : data_(data), poison_(poison) {}

  /// Makes all memory where the plan's engine works, and fills it.
  ///
  /// Errors: kInvalidGraph when a storage is larger than this program binds; kBackend from the device.
  Status allocate(const Graph& graph, const Plan& plan, const WorkspaceFault& fault);
  /// Writes contents, poison and guards anew.
  Status fill();
  /// Errors: kBadBinding for a view outside its storage, and what Bindings::set says.
  Status bind(Bindings& bindings);
  /// Waits for the engine, takes what it wrote, and looks for what was written outside of the storages and
  /// the workspace's regions, or inside of inputs.
  ///
  /// Errors: kInternal naming the tensor and what changed; kBackend when the device failed.
  Status check(const Graph& graph, const Plan& plan);

  Workspace workspace() const { return workspace_view_; }
  /// What the last check() took of an output that has a storage.
  OutputBits output(const Tensor& tensor) const;

 private:
  /// The bytes from a tensor's pointer to the end of its storage.
  std::span<const std::byte> from(const BoundTensor& tensor) const {
    return storages_[*tensor.storage].bytes().subspan(static_cast<size_t>(tensor.offset_bytes));
  }
  /// Whether element `index` of a tensor is as it was before the run.
  bool is_untouched(const BoundTensor& tensor, DataType dtype, size_t index) const;

  const StepData& data_;
  Poison poison_;
  std::vector<GuardedMemory> storages_;
  GuardedMemory workspace_;
  Workspace workspace_view_;
};

}  // namespace attngraph::cli
