#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/case.hpp"
#include "cli/compare.hpp"
#include "cli/step_run.hpp"

namespace attngraph::cli {

/// What came of a case on an engine. `why` is the first wrong element, or the engine's refusal.
struct Verdict {
  enum class Kind : uint8_t { kPass, kFail, kRefused } kind = Kind::kPass;
  std::string why;
};

/// Runs one case on one engine after the other. What the reference engine gives is computed once.
class CaseCheck {
 public:
  CaseCheck(const Case& described, const Library& library)
      : case_(described), library_(library), data_(case_.steps.size()) {}

  Verdict run(const std::string& engine);
  /// What the reference engine makes of a step.
  const StepOutcome& reference(size_t step);

 private:
  Verdict check_step(size_t step, const std::vector<StepOutcome>& earlier, const StepOutcome& outcome);
  std::string check_output(size_t step, const OutputRule& rule, const std::vector<StepOutcome>& earlier,
                           const OutputBits& got);

  const Case& case_;
  Library library_;
  std::vector<std::optional<StepData>> data_;  ///< by step
  std::map<size_t, StepOutcome> reference_;    ///< by step
};

}  // namespace attngraph::cli
