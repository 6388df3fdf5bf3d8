#pragma once

#include "attngraph/attngraph.hpp"
#include "cli/compare.hpp"
#include "cli/graph_data.hpp"
#include "cli/step_memory.hpp"
#include "cli/step_run.hpp"
#include "support/catch.hpp"

namespace attngraph::test {

/// The graph with random data, lengths and offsets.
inline cli::Step step_of(const Graph& graph, const Plan& plan, uint64_t seed) {
  cli::DataOptions options;
  options.seed = seed, options.max_gap = 2;
  cli::Step step;
  step.text.graph = graph;
  step.bind = cli::draw_data(graph, plan, options).value();
  return step;
}

/// The outputs agree with the reference's.
inline void check_outputs(const Graph& graph, const cli::StepMemory& memory, const cli::StepOutcome& want) {
  REQUIRE_FALSE(want.stop.has_value());
  for (const cli::OutputRule& rule : cli::output_rules(graph))
    CHECK(cli::first_mismatch(rule, memory.output(*graph.find(rule.uid)),
                              cli::answer_of(want.outputs.at(rule.uid))) == "");
}

/// One execute with random data, behind guards, agrees with the reference.
inline void check_execute(Context& context, const Graph& graph, const Plan& plan) {
  const cli::Step step = step_of(graph, plan, 1);
  std::optional<cli::StepData> drawn = cli::make_step_data(graph, step).value();
  cli::StepMemory memory(*drawn, cli::kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).message() == "");
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).message() == "");
  REQUIRE(memory.fill().message() == "");
  REQUIRE(execute(plan, bindings, memory.workspace()).message() == "");
  REQUIRE(memory.check(graph, plan).message() == "");
  check_outputs(graph, memory, cli::run_step(cli::Library{context}, cli::kReferenceEngine, step, drawn));
}

}  // namespace attngraph::test
