#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "cli/case.hpp"
#include "cli/output_bits.hpp"
#include "cli/step_data.hpp"

namespace attngraph::cli {

/// Where and why a step ended early.
struct Stop {
  Stage stage = Stage::kParse;
  Status why;
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
  int64_t multiprocessors = 0;  ///< of the CUDA device that plans are made for; 0: the machine's
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
