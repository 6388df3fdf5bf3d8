#include "cli/step_run.hpp"

#include <algorithm>

#include "attngraph/execute.hpp"
#include "attngraph/json.hpp"
#include "base/message.hpp"
#include "cli/step_memory.hpp"

namespace attngraph::cli {
namespace {

constexpr int64_t kRegionGuardBytes = 256;

/// One run of a step in memory of its own.
struct Run {
  Plan plan;
  StepMemory memory;
};

std::optional<Stop> execute_run(const Library& library, const Graph& graph, const Step& step, Run& run) {
  if (const Status status = run.memory.allocate(graph, run.plan, step.workspace); !status.ok())
    return Stop{Stage::kBind, status};
  Bindings bindings(run.plan);
  if (const Status status = run.memory.bind(bindings); !status.ok()) return Stop{Stage::kBind, status};
  const Status status = library.execute(run.plan, bindings, run.memory.workspace());
  if (const Status outside = run.memory.check(graph, run.plan); !outside.ok())
    return Stop{Stage::kExecute, outside};
  if (status.ok()) return std::nullopt;
  return Stop{status.code() == Code::kBadBinding ? Stage::kBind : Stage::kExecute, status};
}

Result<Plan> make_plan(const Library& library, const std::string& engine, const Graph& graph,
                       const Step& step, int64_t guard_bytes) {
  PlanOptions options;
  options.engine = engine;
  options.guard_bytes = guard_bytes;
  options.validate_bindings = step.validate_bindings;
  Result<Target> target = library.context.target_of(engine);
  ATTNGRAPH_RETURN_IF_ERROR(target.status());
  if (library.multiprocessors > 0 && target->memory == MemoryKind::kCuda)
    target->sm_count = static_cast<int>(library.multiprocessors);
  return library.context.plan(graph, *target, options);
}

OutputBits collect(const Tensor& tensor, const StepMemory& first, const StepMemory& second) {
  OutputBits bits = first.output(tensor), again = second.output(tensor);
  bits.bytes_again = std::move(again.bytes);
  for (size_t i = 0; i < bits.untouched.size(); ++i)
    bits.untouched[i] = bits.untouched[i] && again.untouched[i];
  return bits;
}

/// Both runs of a step whose plan is made.
class Runs {
 public:
  Runs(const Library& library, const std::string& engine, const Step& step)
      : library_(library), engine_(engine), step_(step) {}

  void run(const Plan& plan, const StepData& data, StepOutcome& outcome) const {
    const Graph& graph = step_.text.graph;
    Run first{plan, StepMemory(data, kNanPoison)};
    outcome.stop = execute_run(library_, graph, step_, first);
    if (outcome.stop) return;
    const Result<Graph> again = parse(print(graph));
    if (!again.ok() || *again != graph) {
      outcome.stop =
          Stop{Stage::kParse, fail(Code::kInternal, "graph: is another one after print() and parse() ",
                                   again.status().message(), "; must be equal")};
      return;
    }
    const Result<Plan> guarded = make_plan(library_, engine_, *again, step_, kRegionGuardBytes);
    if (!guarded.ok()) {
      outcome.stop = Stop{Stage::kPlan, guarded.status()};
      return;
    }
    Run second{*guarded, StepMemory(data, kZeroPoison)};
    outcome.stop = execute_run(library_, *again, step_, second);
    if (outcome.stop) return;
    for (const Uid uid : bound_outputs(graph))
      if (const BoundTensor* place = data.find(uid); place->storage)
        outcome.outputs.insert_or_assign(uid, collect(*graph.find(uid), first.memory, second.memory));
  }

 private:
  const Library& library_;
  const std::string& engine_;
  const Step& step_;
};

}  // namespace

bool OutputBits::agrees(int64_t index) const {
  if (untouched[static_cast<size_t>(index)]) return true;
  const auto begin = static_cast<ptrdiff_t>(index * element_bytes(dtype));
  return std::equal(bytes.begin() + begin, bytes.begin() + begin + element_bytes(dtype),
                    bytes_again.begin() + begin);
}

StepOutcome run_step(const Library& library, const std::string& engine, const Step& step,
                     std::optional<StepData>& data) {
  StepOutcome outcome;
  const auto stop = [&](Stage stage, const Status& why) {
    outcome.stop = Stop{stage, why};
    return outcome;
  };
  const Graph& graph = step.text.graph;
  if (!step.text.status.ok()) return stop(Stage::kParse, step.text.status);
  if (const Status status = graph.validate(); !status.ok()) return stop(Stage::kValidate, status);
  const Result<Plan> plan = make_plan(library, engine, graph, step, 0);
  if (!plan.ok()) return stop(Stage::kPlan, plan.status());
  outcome.workspace_bytes = plan->workspace_bytes();
  outcome.deterministic = plan->deterministic();
  if (!step.bind) return outcome;
  if (!data) {
    Result<StepData> made = make_step_data(graph, step);
    if (!made.ok()) return stop(Stage::kBind, made.status());
    data = std::move(made).value();
  }
  Runs(library, engine, step).run(*plan, *data, outcome);
  return outcome;
}

}  // namespace attngraph::cli
