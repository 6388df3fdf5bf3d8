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

}  // namespace attngraph::test
