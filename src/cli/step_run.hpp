#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "cli/case.hpp"
#include "cli/step_data.hpp"

namespace attngraph::cli {

/// Where and why a step ended early.
struct Stop {
  Stage stage = Stage::kParse;
  Status why;
};

/// What the two runs left behind an output's pointer, up to the end of its storage.
struct OutputBits {
  DataType dtype = DataType::kF32;
  std::vector<std::byte> bytes;        ///< of the run with NaN poison
  std::vector<std::byte> bytes_again;  ///< of the run with zero poison
  std::vector<bool> untouched;         ///< by element: as it was before, in both runs

  int64_t num_elems() const { return static_cast<int64_t>(untouched.size()); }
  /// Both runs gave element `index` the same bits, or left it alone.
  bool agrees(int64_t index) const;
};

/// What an engine made of a step.
struct StepOutcome {
  std::optional<Stop> stop;  ///< kInternal: a defect, such as an overrun guard or an input that changed
  int64_t workspace_bytes = 0;
  bool deterministic = true;
  std::map<Uid, OutputBits> outputs;
};

/// The library as a step sees it. Tests put a faulty execute in the place of the true one.
struct Library {
  Context& context;
  std::function<Status(const Plan&, const Bindings&, Workspace)> execute =
      [](const Plan& plan, const Bindings& bindings, Workspace workspace) {
        return attngraph::execute(plan, bindings, workspace);
      };
};

/// The engine that answers of "reference" come from.
inline constexpr const char* kReferenceEngine = "reference";

/// Plans the step's graph for the engine and, when the step binds anything, runs it twice: from the
/// graph as read with everything unwritten poisoned by NaN, then from the graph printed and parsed
/// again, with guards around the workspace's regions, poisoned by zero.
///
/// `data` is made on first use and kept for the next engine.
StepOutcome run_step(const Library& library, const std::string& engine, const Step& step,
                     std::optional<StepData>& data);

}  // namespace attngraph::cli
